"""What `plan` says of the layouts that megatron-bridge ships: their memory, and the best one at the same settings."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridgepack.bridge.bases import base_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import TARGET
from bridgepack.planning.calibration import layout_of
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.estimate import Arithmetic, Speed, Work, cost_of
from bridgepack.planning.layout import Gpu, Layout, Memory, gpu_by_name
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.plan import plan_recipe
from bridgepack.planning.search import Search
from bridgepack.planning.shape import ModelShape, model_shape
from tests.support.catalogue import SMALL

_NUM_GPUS, _DEFAULT = re.compile(r"_(\d+)gpu_"), 8
_PARALLEL = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size"),
)
#: Sequences of a pack; enough packs for every global batch.
_PER_PACK, _NUM_SEQUENCES = 4, 1 << 15


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A recipe of the host, its layout, and the best one of a plan at the same GPUs, length and batch."""

    name: str
    recipe: SFTRecipe
    shape: ModelShape
    gpu: Gpu
    layout: Layout
    memory: Memory
    tokens_per_s: float
    best: Candidate | str  #: or why there is none
    ratio: float  #: speed of the best over the shipped one's, of mean packs
    gained: str  #: what of a step the best shortens the most


def text_recipes() -> list[str]:
    """Return the recipes that pack texts and whose model is known."""
    return [name for name in TARGET.facts.recipes if _is_text(name)]


def _is_text(name: str) -> bool:
    dataset = _base(name)["dataset"] or {}
    return str(dataset.get("_target_")).endswith(".GPTSFTDatasetConfig")


def _base(name: str) -> dict[str, Any]:
    return base_of(SFTRecipe.from_mapping({**SMALL, "name": "shipped", "model": {"name": name}}))


def shipped_recipe(name: str) -> SFTRecipe:
    """Return a recipe with the topology, length and batch of one that the host ships."""
    base = _base(name)
    model, num = base["model"], _NUM_GPUS.search(name)
    specs = base["dataset"].get("offline_packing_specs") or {}
    topology = {field: model.get(field) for field in _PARALLEL if model.get(field) is not None}
    tensor = model.get("tensor_model_parallel_size") or 1
    topology["sequence_parallel"] = bool(model.get("sequence_parallel")) and tensor > 1
    ranks = tensor * (model.get("pipeline_model_parallel_size") or 1) * (model.get("context_parallel_size") or 1)
    num_gpus = max(int(num[1]) if num else _DEFAULT, ranks)
    return SFTRecipe.from_mapping(
        {
            **SMALL,
            "name": name,
            "model": {"name": name},
            "method": {"kind": "lora" if base["peft"] else "full"},
            "checkpoint": {"pretrained": "weights"},
            "packing": {"packed_sequence_size": specs.get("packed_sequence_size") or model["seq_length"]},
            "batch": {"global_batch_size": base["train"]["global_batch_size"]},
            "parallelism": {**topology, "num_gpus": num_gpus},
        }
    )


def shipped(name: str) -> Shipped:
    """Return what a plan says of a recipe of the host.

    Raises:
        ConfigError: the sizes of its model are not known.
    """
    recipe = shipped_recipe(name)
    shape, gpu = model_shape(recipe), gpu_by_name("gb200" if "_gb200_" in name else "h100")
    size, num_gpus = recipe.packing.packed_sequence_size, recipe.parallelism.num_gpus or 1
    runtime = np.full(_NUM_SEQUENCES, size // _PER_PACK)
    lengths = Lengths(runtime=runtime, share=1.0, origin="made up")
    search = Search(recipe=recipe, shape=shape, lengths=lengths, gpu=gpu, num_gpus=num_gpus, speed=Speed())
    layout = layout_of(recipe, len(shape.layers))
    own, best, ratio, gained = search.tokens_per_s(layout, size), "", 0.0, ""
    try:
        best = plan_recipe(recipe, lengths, gpu=gpu, num_gpus=num_gpus, sizes=(size,)).best
        ratio = search.tokens_per_s(best.layout, size) / own
        before, after = _seconds(search, layout), _seconds(search, best.layout)
        gained = max(before, key=lambda part: before[part] - after[part])
    except ConfigError as error:
        best = str(error)
    return Shipped(
        name=name,
        recipe=recipe,
        shape=shape,
        gpu=gpu,
        layout=layout,
        memory=search.memory(layout, size),
        tokens_per_s=own,
        best=best,
        ratio=ratio,
        gained=gained,
    )


def _seconds(search: Search, layout: Layout) -> dict[str, float]:
    """Return the seconds per token of all GPUs that parts of a step take with mean packs."""
    size = search.recipe.packing.packed_sequence_size
    work = Work(tokens=np.array([float(size)]), attention=np.array([_attention(search.shape, size)]))
    arithmetic = Arithmetic(
        shape=search.shape,
        gpu=search.gpu,
        layout=layout,
        is_full=search.recipe.method.kind == "full",
        speed=search.speed,
    )
    num_micro = max(round(search.recipe.batch.global_batch_size / layout.data), 1)
    parts = {
        "arithmetic": float((arithmetic.linear_s(work.tokens) + arithmetic.attention_s(work.attention))[0]),
        "exchange": float(arithmetic.exchange_s(work.tokens)[0]),
    }
    micro_s = sum(parts.values())
    waits = micro_s * (arithmetic.pipeline_ratio(num_micro, arithmetic.imbalance(work)) - 1)
    gradients = arithmetic.step_s(micro_s, num_micro) - micro_s * num_micro * arithmetic.pipeline_ratio(num_micro)
    parts |= {"pipeline": waits, "gradients": gradients / num_micro}
    return {name: seconds / layout.data for name, seconds in parts.items()}


def _attention(shape: ModelShape, size: int) -> float:
    cost, part = cost_of(shape), size // _PER_PACK
    return _PER_PACK * float(cost.sequence_flops(part) - cost.per_token * part)


def described(layout: Layout) -> str:
    """Return a layout in one line."""
    virtual = f" VP{layout.virtual}" if layout.virtual > 1 else ""
    recomputed = " full" if layout.recomputes else " " + "+".join(layout.modules) if layout.modules else ""
    return f"TP{layout.tensor} PP{layout.pipeline}{virtual} CP{layout.context} EP{layout.expert}{recomputed}"
