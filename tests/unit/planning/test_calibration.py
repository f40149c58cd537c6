"""Constants of the estimate, fitted to logs whose steps take what known constants make of them."""

from pathlib import Path

import numpy as np
import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.calibration import calibrated
from bridgepack.planning.estimate import Arithmetic, FloatArray, Speed, Work, cost_of, packs_of_steps
from bridgepack.planning.layout import Layout
from bridgepack.planning.lengths import Lengths, packed
from bridgepack.planning.machines import gpu_named
from bridgepack.planning.shape import model_shape
from tests.support.catalogue import SMALL

H100 = gpu_named("h100-80gb")
TRUTH = Speed(linear=0.4, attention=0.25)
RANDOM = np.random.default_rng(1)
MIXED = np.concatenate([RANDOM.integers(100, 2000, 4000), RANDOM.integers(8000, 32000, 60)])


def _recipe(**parallelism: int) -> SFTRecipe:
    ranks = {"tensor_model_parallel_size": 4, "sequence_parallel": True, **parallelism}
    sizes = {"packing": {"packed_sequence_size": 32768}, "batch": {"global_batch_size": 8}}
    return SFTRecipe.from_mapping({**SMALL, **sizes, "parallelism": ranks, "model": {"name": "Qwen/Qwen3-8B"}})


def _step_times(recipe: SFTRecipe, lengths: Lengths, steps: range) -> FloatArray:
    """Return the seconds of steps on four ranks of tensor parallelism with the true speeds."""
    shape, layout = model_shape(recipe), Layout(num_gpus=16, tensor=4)
    arithmetic = Arithmetic(shape=shape, gpu=H100, layout=layout, is_full=True, speed=TRUTH)
    work = Work.of(packed(lengths, recipe, 4), cost_of(shape))
    seconds = arithmetic.packs_s(work)
    read = packs_of_steps(recipe, len(seconds), steps)
    slowest = [seconds[packs].sum(axis=1).max() for packs in read]
    return np.array(
        [arithmetic.step_s(one / packs.shape[1], packs.shape[1]) for one, packs in zip(slowest, read, strict=True)]
    )


def _log(path: Path, times: FloatArray) -> Path:
    lines = [
        f" [2026-11-23 10:00:00] iteration {step:8d}/{len(times):8d} | consumed samples: {8 * step:12d} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} | learning rate: 1.0E-06 |"
        for step, seconds in enumerate(times, 1)
    ]
    path.write_text("starting\n" + "\n".join(lines) + "\n")
    return path


def test_both_constants_are_found_where_attention_differs_from_step_to_step(tmp_path: Path) -> None:
    lengths = Lengths(runtime=MIXED, share=1.0, origin="")
    times = _step_times(_recipe(num_gpus=16), lengths, range(1, 21))
    times[0] *= 10  # kernels are compiled

    found = calibrated(_log(tmp_path / "run.log", times), _recipe(num_gpus=16), lengths, H100)

    assert found.linear == pytest.approx(TRUTH.linear, rel=0.01)
    assert found.attention == pytest.approx(TRUTH.attention, rel=0.05)


def test_of_a_sample_both_are_scaled_alike(tmp_path: Path) -> None:
    whole, sample = (Lengths(runtime=MIXED, share=share, origin="") for share in (1.0, 0.5))
    times = _step_times(_recipe(num_gpus=16), whole, range(1, 21))

    found = calibrated(_log(tmp_path / "run.log", times), _recipe(num_gpus=16), sample, H100)

    assert found.linear / found.attention == pytest.approx(Speed().linear / Speed().attention)
    assert TRUTH.attention < found.linear < Speed().linear


@pytest.mark.parametrize(
    ("times", "parallelism", "message"),
    [
        ([1.0, 1.0], {"num_gpus": 16}, "which has 2 step times; allowed: 3 or more"),
        ([2.0] * 5, {}, "parallelism.num_gpus is missing; --calibrate needs"),
        ([0.05] * 5, {"num_gpus": 16}, r"which would be \d+% of the speed of h100-80gb .* Name the recipe and the"),
        ([0.001] * 5, {"num_gpus": 16}, "Name the recipe and the --"),
        ([2.0] * 2000, {"num_gpus": 16}, r"whose steps are not those of the recipe .* step is 22; allowed: 1 to"),
    ],
)
def test_logs_of_other_runs(tmp_path: Path, times: list[float], parallelism: dict[str, int], message: str) -> None:
    log = _log(tmp_path / "run.log", np.array(times))

    with pytest.raises(ConfigError, match=message):
        calibrated(log, _recipe(**parallelism), Lengths(runtime=MIXED, share=1.0, origin=""), H100)


def test_what_is_no_number_in_a_log_is_no_step(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    line = " iteration {step}/ 9 | elapsed time per iteration (ms): {time} |\n"
    log.write_text("".join(line.format(step=step, time=time) for step, time in ((1, ".."), (2, "."), ("9" * 5000, 5))))

    with pytest.raises(ConfigError, match="which has 0 step times; allowed: 3 or more"):
        calibrated(log, _recipe(num_gpus=16), Lengths(runtime=MIXED, share=1.0, origin=""), H100)
