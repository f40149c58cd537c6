"""What a base brings that the recipe's topology or packed rows cannot take, as settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridgepack.bridge.wiring import Setting, derived
from bridgepack.bridge.writing.host_fields import value_at
from bridgepack.bridge.writing.topology import has_biased_experts
from bridgepack.config.recipe.recipe import SFTRecipe

_MTP = "model.mtp_num_layers"
_QUANTIZED_ROUTERS = ("model.moe_router_padding_for_quantization", "model.moe_router_padding_for_fp8")
_GRAPH_SCOPE = "model.cuda_graph_scope"
_EXPERT_TENSOR = "model.expert_tensor_parallel_size"
_LAYOUT = "model.pipeline_model_parallel_layout"
_SPLITS = (
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
    "model.account_for_embedding_in_pipeline_split",
    "model.account_for_loss_in_pipeline_split",
)
_NO_MTP = "the layers that predict further tokens take neither loss masks nor boundaries of packed sequences"


def inherited_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    """Yield the settings that undo what a base cannot bring along.

    Args:
        base: a ConfigContainer; only read.
        recipe: what it will be used for.
    """
    packs = recipe.packing.mode != "none"
    moved = list(_pipeline_settings(base, recipe))
    yield from moved
    if packs:
        yield from (one for one in prediction_settings(base) if one.path not in {setting.path for setting in moved})
    if recipe.cuda_graphs.implementation != "none" and value_at(base, _GRAPH_SCOPE):
        because = "an old name of cuda_graph_modules; the host takes one of them"
        yield derived(_GRAPH_SCOPE, None, because)
    if has_biased_experts(base) and recipe.parallelism.expert_tensor_parallel_size is None:
        because = "experts with biases cannot be split over ranks"
        yield derived(_EXPERT_TENSOR, 1, because)
    if not any(part in recipe.precision.recipe for part in ("fp8", "fp4")):
        because = f"only FP8 and FP4 need it; precision.recipe is {recipe.precision.recipe}"
        for path in _QUANTIZED_ROUTERS:
            if value_at(base, path):
                yield derived(path, False, because)


def prediction_settings(base: Any) -> Iterator[Setting]:
    """Yield the settings that take the layers which predict further tokens out of a model for packed rows."""
    if not value_at(base, _MTP):
        return
    yield derived(_MTP, None, _NO_MTP)
    layout = value_at(base, _LAYOUT)
    if isinstance(layout, (str, list)):
        yield derived(_LAYOUT, _without_prediction(layout), _NO_MTP)


def _pipeline_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    topology = recipe.parallelism
    model = base.model
    stages = (topology.pipeline_model_parallel_size, topology.virtual_pipeline_model_parallel_size or 1)
    of_base = (model.pipeline_model_parallel_size, model.virtual_pipeline_model_parallel_size or 1)
    if stages != of_base:
        because = f"the base's is for {of_base[0]} x {of_base[1]} stages, the run has {stages[0]} x {stages[1]}"
        for path in (_LAYOUT, *_SPLITS):
            value = value_at(base, path)
            if value:
                yield derived(path, False if value is True else None, because)


def _without_prediction(layout: Any) -> Any:
    """Return a layout without prediction layers: `Ett|tmL` -> `Ett|tL`, `[["decoder", "mtp"]]` -> `[["decoder"]]`."""
    if isinstance(layout, str):
        return layout.replace("m", "")
    return [[layer for layer in stage if layer != "mtp"] for stage in layout]
