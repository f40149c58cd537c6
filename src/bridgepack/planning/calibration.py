"""Fits the two constants of the estimate to the step times in the log of a run."""

import re
from pathlib import Path

import numpy as np

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.packing.pipeline import step_times
from bridgepack.errors import ConfigError
from bridgepack.planning.estimate import Arithmetic, FloatArray, Speed, Work, cost_of, packs_of_steps
from bridgepack.planning.layout import Gpu, Layout
from bridgepack.planning.lengths import Lengths, pack_lengths
from bridgepack.planning.shape import model_shape
from bridgepack.planning.stages import even_counts, stated_split
from bridgepack.user_files import MAX_LARGE_BYTES, read_bytes

#: Source: `training_log` of megatron/bridge/training/utils/train_utils.py, 0.6.2.
_STEP = re.compile(r"iteration\s+(\d{1,18})/\s*\d+ \|.*?elapsed time per iteration \(ms\): (\d+(?:\.\d*)?)")
#: Minimum steps of a fit, and maximum step time in medians: the first steps compile and allocate.
_LEAST_STEPS, _SLOWEST = 3, 1.5
#: Minimum spread (standard deviation / mean) of attention's share of the steps to fit both constants separately.
_LEAST_SPREAD = 0.02


def fit_speed(log: Path, recipe: SFTRecipe, lengths: Lengths, gpu: Gpu) -> Speed:
    """Return the speeds for which the estimate matches the step times of a recipe's run.

    Both are fitted if attention's share differs between the steps; else the default speeds are scaled equally. With all
    packs known each step has its own packs, in the host's order; with a sample each has packs of the mean.

    `log` is the host's, e.g. `iteration 5/ 100 | ... elapsed time per iteration (ms): 1234.5 |`; the others are of its
    run.

    Raises:
        ConfigError: the log cannot be read, has too few steps, or is faster than the GPU can be.
    """
    times = _times(log)
    if recipe.parallelism.num_gpus is None:
        message = "parallelism.num_gpus is missing; --calibrate needs the GPUs that the log is of. Set it."
        raise ConfigError(message, field="parallelism.num_gpus")
    linear, attention, other_seconds = _predict(recipe, lengths, gpu, [step for step, _ in times])
    speed = _fit(linear, attention, np.array([seconds for _, seconds in times]) - other_seconds)
    if not (0 < speed.linear <= 1 and 0 < speed.attention <= 1):
        raise ConfigError(
            f"--calibrate is {str(log)!r}; its steps take {np.median([seconds for _, seconds in times]):.2f} s, "
            f"which would be {speed.linear:.0%} of the speed of {gpu.name} for matrices and {speed.attention:.0%} for "
            "attention; allowed: above 0 % and at most 100 %. Name the recipe and the --gpu that the log is of."
        )
    return speed


def _times(log: Path) -> list[tuple[int, float]]:
    """Return (step, seconds) of the steps after warming up."""
    try:
        text = read_bytes(log, max_bytes=MAX_LARGE_BYTES).decode(errors="replace")
    except OSError as error:
        raise ConfigError(f"--calibrate is {str(log)!r}; it cannot be read: {error.strerror}. Name a log.") from None
    seconds_of_step = {int(step): float(milliseconds) / 1000 for step, milliseconds in _STEP.findall(text)}
    longest = _SLOWEST * float(np.median(list(seconds_of_step.values()))) if seconds_of_step else 0.0
    times = [(step, seconds) for step, seconds in sorted(seconds_of_step.items()) if 0 < seconds <= longest]
    if len(times) < _LEAST_STEPS:
        raise ConfigError(
            f"--calibrate is {str(log)!r}, which has {len(times)} step times; allowed: {_LEAST_STEPS} or more, as "
            "lines with `iteration N/ M | ... elapsed time per iteration (ms): T`. Name the log of a training run."
        )
    return times


def _predict(recipe: SFTRecipe, lengths: Lengths, gpu: Gpu, steps: list[int]) -> FloatArray:
    """Return seconds of the slowest rank of each step at peak: matrices, attention, others; shape [3, num_steps]."""
    shape = model_shape(recipe)
    layout = layout_of(recipe, len(shape.layers))
    arithmetic = Arithmetic(
        shape=shape,
        gpu=gpu,
        layout=layout,
        is_full=recipe.method.kind == "full",
        speed=Speed(linear=1.0, attention=1.0),
    )
    rows = pack_lengths(lengths, recipe, recipe.resolve().pad_seq_to_mult.value)
    work = Work.from_packs(rows, cost_of(shape), layout.context)
    try:
        read = packs_of_steps(recipe, len(work.tokens), steps if lengths.share == 1 else None)
    except ConfigError as error:
        raise ConfigError(
            f"--calibrate names a log whose steps are not those of the recipe and its data: {error} Name its recipe."
        ) from None
    linear, attention = arithmetic.linear_s(work.tokens), arithmetic.attention_s(work.attention)
    exchange, imbalance = arithmetic.exchange_s(work.tokens), arithmetic.imbalance(work)
    parts = []
    for packs in read:
        of_ranks = np.stack([part[packs].sum(axis=1) for part in (linear, attention, exchange)])
        times = step_times((linear + attention + exchange)[packs][None], layout.pipeline)[0]
        slowest = of_ranks[:, int(times.argmax())]
        num_micro, micro_s = packs.shape[1], float(slowest.sum()) / packs.shape[1]
        even_s = slowest.sum() * (1 + (layout.pipeline - 1) / num_micro)
        bubbles = arithmetic.pipeline_ratio(num_micro, imbalance) * float(times.max() / even_s)
        gradients = arithmetic.step_s(micro_s, num_micro, imbalance) - slowest.sum() * arithmetic.pipeline_ratio(
            num_micro, imbalance
        )
        parts.append([*(slowest[:2] * bubbles), slowest[2] * bubbles + gradients])
    table: FloatArray = np.array(parts if lengths.share == 1 else [np.mean(parts, axis=0)] * len(steps)).T
    return table


def layout_of(recipe: SFTRecipe, num_layers: int) -> Layout:
    """Return the layout of a recipe's run."""
    topology = recipe.parallelism
    model = config_of_recipe(recipe.override({"artifact": None})).values.get("model", {})
    split, granularity = stated_split(model, num_layers), model.get("recompute_granularity")
    return Layout(
        num_gpus=topology.num_gpus or topology.ranks_of_copy,
        tensor=topology.tensor_model_parallel_size,
        pipeline=topology.pipeline_model_parallel_size,
        context=topology.context_parallel_size,
        expert=topology.expert_model_parallel_size,
        layers=split.counts if split else even_counts(model, num_layers),
        recomputes=granularity == "full",
        modules=tuple(model.get("recompute_modules") or ()) if granularity == "selective" else (),
        splits_sequence=topology.sequence_parallel,
    )


def _fit(linear: FloatArray, attention: FloatArray, step_seconds: FloatArray) -> Speed:
    share = attention / linear
    if share.std() > _LEAST_SPREAD * share.mean():
        factors, *_ = np.linalg.lstsq(np.stack([linear, attention], axis=1), step_seconds, rcond=None)
        if (factors >= 1).all():
            return Speed(linear=1 / float(factors[0]), attention=1 / float(factors[1]))
    usual = Speed()
    estimate = linear / usual.linear + attention / usual.attention
    factor = float(step_seconds @ estimate / (estimate @ estimate))
    return Speed(linear=usual.linear / factor, attention=usual.attention / factor) if factor > 0 else Speed(linear=0)
