"""The settings of a recipe over its base config, and the settings of the base that a recipe must undo.

A base is a ConfigContainer or its plain values, so the rules judge the settings that are written.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.plain import value_at
from bridgepack.bridge.wiring import SPECS, Packs, Setting, derived_setting, host_settings
from bridgepack.bridge.wiring.settings import with_overrides_in_fields
from bridgepack.config.recipe.recipe import SFTRecipe

#: What the host wants as path objects; a recipe file has texts.
PATH_SETTINGS = frozenset({f"{SPECS}.packed_metadata_path"})
_PRECISION = "mixed_precision"
#: Fields of mixed precision that tell number formats apart.
_FORMATS = ("fp32", "fp16", "bf16", "fp8", "fp8_recipe", "fp4", "fp4_recipe")
_STAGES = ("model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size")
_MTP = "model.mtp_num_layers"
_QUANTIZED_ROUTERS = ("model.moe_router_padding_for_quantization", "model.moe_router_padding_for_fp8")
_GRAPH_SCOPE = "model.cuda_graph_scope"
_LAYOUT = "model.pipeline_model_parallel_layout"
_SPLITS = (
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
    "model.account_for_embedding_in_pipeline_split",
    "model.account_for_loss_in_pipeline_split",
)
_FUSION = "model.gradient_accumulation_fusion"
_HOOKED = "ranks add the gradients of the adapters that their experts share only without it"
_PREDICTIONS, _EMPTY_GROUP = re.compile(r"m(?:\*\d+)?"), re.compile(r"\(\)(?:\*\d+)?")
_NO_MTP = "the layers that predict further tokens take neither loss masks nor boundaries of packed sequences"


def settings_over(
    base: Mapping[str, Any], recipe: SFTRecipe, packs: Packs | None, precision: Mapping[str, Any]
) -> dict[str, Setting]:
    """Return path -> setting that is written into a base.

    Args:
        base: plain values.
        recipe: the recipe.
        packs: the packs of the run; None if unknown.
        precision: plain values of the host's registered mixed precision with the recipe's name.
    """
    settings = {setting.path: as_host_type(setting) for setting in host_settings(recipe, packs=packs)}
    keeps_prediction = _MTP in settings  # an override says how many layers there are
    for setting in inherited_settings(base, with_overrides_in_fields(recipe)):
        if keeps_prediction and setting.because == _NO_MTP:
            continue
        if setting.path not in settings or settings[setting.path].origin != "recipe":
            settings[setting.path] = setting
    layout = settings.get(_LAYOUT)
    if not keeps_prediction and _MTP in settings and layout is not None and layout.origin == "recipe":
        settings[_LAYOUT] = replace(layout, value=_without_mtp(layout.value), origin="derived", because=_NO_MTP)
    details = base.get(_PRECISION)
    has_details = isinstance(details, Mapping) and has_formats_of(details, precision) and details != precision
    if settings[_PRECISION].origin == "default" and has_details:  # beyond those of the registered precision
        del settings[_PRECISION]
    return settings


def as_host_type(setting: Setting) -> Setting:
    """Return a setting with its text converted to a path object if the host needs one; null stays null."""
    is_path = setting.path in PATH_SETTINGS and isinstance(setting.value, str)
    return replace(setting, value=Path(setting.value)) if is_path else setting


def is_decided(path: str, settings: Mapping[str, Setting]) -> bool:
    """Return whether settings write a path, a field inside it, or a section around it."""
    return any(
        path == decided_path or path.startswith(f"{decided_path}.") or decided_path.startswith(f"{path}.")
        for decided_path in settings
    )


def has_formats_of(precision: Any, reference: Any) -> bool:
    """Return whether two kinds of mixed precision, objects or plain values, have the same number formats."""
    return all(value_at(precision, name) == value_at(reference, name) for name in _FORMATS)


def inherited_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    """Yield the settings that undo values of the base, live or plain, which do not fit a recipe."""
    pipeline_settings = list(_pipeline_settings(base, recipe))
    yield from pipeline_settings
    if recipe.packing.mode != "none":
        yield from (
            prediction
            for prediction in prediction_settings(base)
            if prediction.path not in {setting.path for setting in pipeline_settings}
        )
    if recipe.cuda_graphs.implementation != "none" and value_at(base, _GRAPH_SCOPE):
        yield derived_setting(_GRAPH_SCOPE, None, "an old name of cuda_graph_modules; the host takes one of them")
    # Source: megatron/core/transformer/transformer_config.py of 0.19.2, "Bias in Moe is only supported when ETP==1".
    has_biased_experts = value_at(base, "model.num_moe_experts") and value_at(base, "model.add_bias_linear")
    if has_biased_experts and recipe.parallelism.expert_tensor_parallel_size is None:
        yield derived_setting("model.expert_tensor_parallel_size", 1, "experts with biases cannot be split over ranks")
    if _shares_adapters_over_ranks(base, recipe):
        yield derived_setting(_FUSION, False, _HOOKED)
    if not any(part in recipe.precision.recipe for part in ("fp8", "fp4")):
        because = f"only FP8 and FP4 need it; precision.recipe is {recipe.precision.recipe}"
        yield from (derived_setting(path, False, because) for path in _QUANTIZED_ROUTERS if value_at(base, path))


def _shares_adapters_over_ranks(base: Any, recipe: SFTRecipe) -> bool:
    """Return whether experts of several ranks share an adapter: BP849.

    Most model classes decide about the fusion where training runs: with TransformerEngine it is on. So its value in the
    base says nothing, and off is written.
    """
    if recipe.method.kind != "lora":
        return False
    targets = recipe.method.target_modules or value_at(base, "peft.target_modules") or ()
    has_targets = any("linear_fc" in target or "*" in target for target in map(str, targets))
    is_split = recipe.parallelism.expert_model_parallel_size > 1 and bool(value_at(base, "model.num_moe_experts"))
    return is_split and (has_targets or not targets)


def prediction_settings(base: Any) -> Iterator[Setting]:
    """Yield the settings that remove multi-token prediction layers from a model for packs.

    Layouts lose them as well: `Ett|tmL` -> `Ett|tL`, `[["decoder", "mtp"]]` -> `[["decoder"]]`.
    """
    if not value_at(base, _MTP):
        return
    yield derived_setting(_MTP, None, _NO_MTP)
    layout = value_at(base, _LAYOUT)
    if isinstance(layout, str | list):
        yield derived_setting(_LAYOUT, _without_mtp(layout), _NO_MTP)


def _without_mtp(layout: Any) -> Any:
    """Return a layout without multi-token prediction layers: `Et*8|t*8m*2L` -> `Et*8|t*8L`.

    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py of 0.19.2, parse_str_to_list.
    """
    if isinstance(layout, str):
        return _EMPTY_GROUP.sub("", _PREDICTIONS.sub("", layout.replace(",", "") if "m" in layout else layout))
    if isinstance(layout, list):
        return [[layer for layer in stage if _kind(layer) != "mtp"] for stage in layout]
    return layout


def _kind(layer: Any) -> str:
    """Return the kind of a layer of a layout: its letter's name, or the member of an enumeration."""
    return str(layer.get("_name_") if isinstance(layer, Mapping) else layer).strip().lower()


def _pipeline_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    topology = recipe.parallelism
    stages = (topology.pipeline_model_parallel_size, topology.virtual_pipeline_model_parallel_size or 1)
    of_base = tuple(value_at(base, path) or 1 for path in _STAGES)
    if stages == of_base:
        return
    because = f"the base's is for {of_base[0]} x {of_base[1]} stages, the run has {stages[0]} x {stages[1]}"
    for path in (_LAYOUT, *_SPLITS):
        value = value_at(base, path)
        if value:
            yield derived_setting(path, False if value is True else None, because)
