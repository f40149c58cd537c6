"""How a model's layers are split over pipeline stages: even, uneven or interleaved, and the settings that say so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.planning.shape import ModelShape
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.run.pipeline_layouts import stages_of

FloatArray = npt.NDArray[np.float64]

_LAYOUT, _PATTERN = "pipeline_model_parallel_layout", "hybrid_layer_pattern"
_ENDS = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
#: Settings of the host's model that split its layers, and what turns them off.
OFF: Mapping[str, bool | None] = {_LAYOUT: None, **dict.fromkeys(_ENDS), **dict.fromkeys(_ACCOUNTS, False)}
STAGES = ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size")
#: Maximum pipeline stages, and virtual stages on each of them.
_MOST_STAGES, _VIRTUAL = 32, (1, 2, 4, 8)
#: Speed of routed experts relative to dense arithmetic (0-1); their matrices are small.
ROUTED = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Layers of each stage; with interleaving, of each virtual stage, number i of which is on pipeline rank i % P."""

    pipeline: int = 1  #: pipeline ranks, P
    counts: tuple[int, ...]  #: layers of each virtual stage, in the model's order
    settings: tuple[tuple[str, Any], ...] = ()  #: the host's model settings that say so; none for an even split
    is_base: bool = False  #: whether the base of the recipe says so itself

    @property
    def virtual(self) -> int:
        """Virtual stages of a pipeline rank; 1 without interleaving."""
        return len(self.counts) // self.pipeline


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Loads:
    """What each pipeline rank has of a model; arrays of shape [pipeline], float64."""

    weights: FloatArray  #: weights of layers that every token uses
    routed: FloatArray  #: weights of routed experts
    activations: FloatArray  #: bytes of a token that the backward pass needs
    unsplit: FloatArray  #: those of them that tensor parallelism splits only with sequence parallelism
    largest: FloatArray  #: bytes of a token in its layer with the most
    again: FloatArray  #: bytes of a token in the recomputed parts of a layer, of the layer with the most
    num_layers: FloatArray  #: layers
    linear: FloatArray  #: share of the arithmetic with weights, with the output matrix; adds up to 1
    attention: FloatArray  #: share of the attention; adds up to 1, or 0 without attention


@lru_cache(maxsize=4096)
def loads_of(shape: ModelShape, pipeline: int, counts: tuple[int, ...], modules: tuple[str, ...] = ()) -> Loads:
    """Return what each pipeline rank has of a model's layers; without `counts`, of an even split.

    `modules` are recomputed alone.
    """
    counts = counts or _spread(len(shape.layers), pipeline, loss=1)
    rank = np.repeat(np.arange(len(counts)) % pipeline, counts)

    def sum_by_rank(values: Sequence[float]) -> FloatArray:
        return np.bincount(rank, weights=np.asarray(values, dtype=np.float64), minlength=pipeline)

    layers = shape.layers
    kept_bytes, again = [layer.kept.whole for layer in layers], [layer.kept.freed_bytes(modules) for layer in layers]
    largest, most_again = np.zeros(pipeline), np.zeros(pipeline)
    np.maximum.at(largest, rank, kept_bytes)
    np.maximum.at(most_again, rank, again)
    linear = sum_by_rank([layer.weights + layer.scan + layer.routed_used / ROUTED for layer in layers])
    linear[-1] += shape.embedding
    attention = sum_by_rank([layer.width for layer in layers])
    return Loads(
        weights=sum_by_rank([layer.weights for layer in layers]),
        routed=sum_by_rank([layer.routed for layer in layers]),
        activations=sum_by_rank(kept_bytes) - sum_by_rank(again),
        unsplit=sum_by_rank([layer.kept.unsplit for layer in layers]),
        largest=largest,
        again=most_again,
        num_layers=sum_by_rank([1.0] * len(layers)),
        linear=linear / linear.sum(),
        attention=attention / max(attention.sum(), 1.0),
    )


def splits(shape: ModelShape, num_gpus: int, base: Mapping[str, Any]) -> Iterator[Split]:
    """Yield the ways to split a model's layers: even, else with embedding and loss as layers, else stage by stage.

    `base` are the model's settings without the recipe's topology; a split that they state for its number of stages is
    the only one of that number.
    """
    base_split = stated_split(base, len(shape.layers))
    if base_split is not None and num_gpus % base_split.pipeline == 0:
        yield base_split
    max_stages = min(_MOST_STAGES, len(shape.layers), num_gpus)
    for pipeline in (size for size in range(1, max_stages + 1) if num_gpus % size == 0):
        for virtual in _VIRTUAL if pipeline > 1 else (1,):
            is_stated = base_split is not None and (base_split.pipeline, base_split.virtual) == (pipeline, virtual)
            if pipeline * virtual <= len(shape.layers) and not is_stated:
                yield _split(shape, pipeline, virtual)


def _split(shape: ModelShape, pipeline: int, virtual: int) -> Split:
    num_layers, stages = len(shape.layers), pipeline * virtual
    if num_layers % stages == 0 and not (shape.pattern and virtual > 1):
        return Split(pipeline=pipeline, counts=(num_layers // stages,) * stages)
    if not shape.pattern and (num_layers + 2) % stages == 0 and num_layers + 2 > stages:
        per_stage = (num_layers + 2) // stages
        counts = (per_stage - 1, *[per_stage] * (stages - 2), per_stage - 1)
        return Split(pipeline=pipeline, counts=counts, settings=tuple(dict.fromkeys(_ACCOUNTS, True).items()))
    mean = sum(layer.weights + layer.routed_used for layer in shape.layers) / num_layers
    counts = _spread(num_layers, stages, loss=max(round(shape.embedding / mean), 1))
    if shape.pattern:
        main, slash, mtp_pattern = shape.pattern.partition("/")
        ends = np.cumsum(counts)
        parts = [main[end - count : end] for end, count in zip(ends, counts, strict=True)]
        return Split(pipeline=pipeline, counts=counts, settings=((_PATTERN, "|".join(parts) + slash + mtp_pattern),))
    stages_text = [_layers_text(count) for count in counts]
    text = f"E{'|'.join(stages_text)}L"
    return Split(pipeline=pipeline, counts=counts, settings=((_LAYOUT, text),))


def _layers_text(count: int) -> str:
    return "t" if count == 1 else f"t*{count}"


def _spread(num_layers: int, stages: int, *, loss: int) -> tuple[int, ...]:
    """Return layers per stage, as even as possible where the loss counts as so many layers, each stage with some.

    The first stages have the fewest of them, because they keep the most activations. With a loss of one, 61 layers over
    4 stages are 15, 16, 16, 14.
    """
    if num_layers % stages == 0:
        return (num_layers // stages,) * stages
    loss = min(loss, num_layers // stages)
    least, remainder = divmod(num_layers + loss, stages)
    while least - loss < 1:
        loss -= 1
        least, remainder = divmod(num_layers + loss, stages)
    counts = [least] * stages
    counts[-1] -= loss
    for index in range(remainder):
        counts[-2 - index % (stages - 1)] += 1
    return tuple(counts)


def stated_split(values: Mapping[str, Any], num_layers: int) -> Split | None:
    """Return the uneven split that a model's settings state, or None; it has to fit the number of layers."""
    pipeline = values.get("pipeline_model_parallel_size") or 1
    virtual = values.get("virtual_pipeline_model_parallel_size") or 1
    try:
        counts = _stated_counts(values, pipeline, virtual, num_layers)
    except CannotJudgeError:  # `check` says what is wrong with the layout
        return None
    if not counts or sum(counts) != num_layers or len(counts) % pipeline:
        return None
    return Split(pipeline=pipeline, counts=tuple(counts), is_base=True)


def even_counts(values: Mapping[str, Any], num_layers: int) -> tuple[int, ...]:
    """Return the layers of each virtual stage where settings split them evenly; empty with one pipeline rank."""
    pipeline, virtual = (values.get(f"{name}pipeline_model_parallel_size") or 1 for name in ("", "virtual_"))
    return () if pipeline == 1 else _spread(num_layers, pipeline * virtual, loss=1)


def _stated_counts(values: Mapping[str, Any], pipeline: int, virtual: int, num_layers: int) -> Sequence[int] | None:
    layout, pattern = values.get(_LAYOUT), str(values.get(_PATTERN) or "").partition("/")[0]
    if layout:
        return [stage.count("decoder") for stage in stages_of(layout)]
    if "|" in pattern:
        return [len(part) for part in pattern.split("|")]
    ends, stages = [values.get(name) for name in _ENDS], pipeline * virtual
    if pipeline == 1:
        return None
    if any(ends):
        middle = pipeline - sum(count is not None for count in ends)
        per_stage = (num_layers - sum(count or 0 for count in ends)) // max(middle, 1)
        of_ranks = [ends[0] or per_stage, *[per_stage] * (pipeline - 2), ends[1] or per_stage]
        return [count // virtual for count in of_ranks] * virtual
    first, last = (bool(values.get(name)) for name in _ACCOUNTS)
    if not (first or last):
        return None
    per_stage = (num_layers + first + last) // stages
    return [per_stage - first, *[per_stage] * (stages - 2), per_stage - last]


def split_changes(split: Split, base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of a recipe, dotted path -> value, with which its layers are split so.

    What the base states holds for its own number of stages; what the recipe overrides holds for any until undone.
    """
    if split.is_base:
        return {}
    is_for_base = (base.get(STAGES[0]) or 1, base.get(STAGES[1]) or 1) == (split.pipeline, split.virtual)
    settings = dict(split.settings)
    for name, off in OFF.items():
        if overrides.get(name) or (is_for_base and base.get(name)):
            settings.setdefault(name, off)
    pattern = overrides.get(_PATTERN, base.get(_PATTERN)) or ""
    if "|" in pattern:
        settings.setdefault(_PATTERN, pattern.replace("|", ""))
    return {f"bridge_overrides.model.{name}": value for name, value in settings.items()}
