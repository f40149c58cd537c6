"""Shapes of models, what their sequences cost, and constants of the estimate, fitted to logs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.calibration import fit_speed
from bridgepack.planning.estimate import Arithmetic, FloatArray, Speed, Work, cost_of, packs_of_steps
from bridgepack.planning.layout import Layout, gpu_by_name
from bridgepack.planning.lengths import Lengths, pack_lengths
from bridgepack.planning.shape import model_shape
from tests.support.catalogue import SMALL
from tests.support.hub_configs import model_configs


def _recipe(model: str | None, **overrides: Any) -> SFTRecipe:
    own = {"model": {"name": model}} if model else {}
    return SFTRecipe.from_mapping({**SMALL, **own, "bridge_overrides": {"model": overrides} if overrides else {}})


@pytest.mark.parametrize(
    ("model", "overrides", "billions"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", {}, 8.03),
        ("Qwen/Qwen3-30B-A3B", {}, 30.5),
        ("deepseek-ai/DeepSeek-V3", {}, 671),
        ("qwen3_8b_sft_4gpu_h100_bf16_config", {}, 8.19),
        ("nemotron_3_nano_sft_8gpu_h100_bf16_config", {}, 31.6),
        ("nemotronh_8b_sft_2gpu_h100_bf16_config", {"vocab_size": 131072}, 8.1),
    ],
)
def test_weights_are_as_many_as_published(model: str, overrides: dict[str, Any], billions: float) -> None:
    assert model_shape(_recipe(model, **overrides)).num_weights / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_config_of_the_hub_says_the_same_as_the_host(tmp_path: Path) -> None:
    for name in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"):
        (tmp_path / "config.json").write_text(json.dumps(model_configs()[name]))
        assert cost_of(model_shape(_recipe(str(tmp_path)))) == cost_of(model_shape(_recipe(name)))


OF_NO_MODEL: tuple[dict[str, Any], ...] = (
    *({"num_layers": 0}, {"hidden_size": "wide"}, {"hidden_size": -1}, {"moe_layer_freq": [1]}),
    {"window_size": 8, "window_attn_skip_freq": [1]},
)


@pytest.mark.parametrize(
    ("model", "sizes", "message"),
    [
        (None, {}, "model.name is not set; allowed"),
        ("org/unheard-8b", {}, "model.name is 'org/unheard-8b'"),
        ("deepseek-ai/DeepSeek-V4-Flash", {}, "dsv4_hybrid, has no formula"),
        *(("Qwen/Qwen3-8B", sizes, "sizes are not known") for sizes in OF_NO_MODEL),
    ],
)
def test_an_unknown_model_is_refused_with_what_to_name(model: str | None, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cost_of(model_shape(_recipe(model, **sizes)))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "config.json: JSONDecodeError"),
        ("[1]", "config.json"),
        ('{"hidden_size": 8}', "KeyError: 'num_hidden_layers'"),
        ('{"mamba_d_state": 16}', "has mamba_d_state; allowed"),
        ('{"layer_types": ["linear_attention"]}', "has linear_attention; allowed"),
    ],
)
def test_a_config_that_does_not_tell_is_refused(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "config.json").write_text(config)

    with pytest.raises(ConfigError, match=message):
        cost_of(model_shape(_recipe(str(tmp_path))))


H100 = gpu_by_name("h100-80gb")
TRUTH = Speed(linear=0.4, attention=0.25)
RANDOM = np.random.default_rng(1)
MIXED = np.concatenate([RANDOM.integers(100, 2000, 4000), RANDOM.integers(8000, 32000, 60)])


def _logged(**parallelism: int) -> SFTRecipe:
    ranks = {"tensor_model_parallel_size": 4, "sequence_parallel": True, **parallelism}
    sizes = {"packing": {"packed_sequence_size": 32768}, "batch": {"global_batch_size": 8}}
    return SFTRecipe.from_mapping({**SMALL, **sizes, "parallelism": ranks, "model": {"name": "Qwen/Qwen3-8B"}})


def _step_times(recipe: SFTRecipe, lengths: Lengths, steps: range) -> FloatArray:
    """Return the seconds of steps on four ranks of tensor parallelism with the true speeds."""
    shape, layout = model_shape(recipe), Layout(num_gpus=16, tensor=4)
    arithmetic = Arithmetic(shape=shape, gpu=H100, layout=layout, is_full=True, speed=TRUTH)
    seconds = arithmetic.packs_s(Work.from_packs(pack_lengths(lengths, recipe, 4), cost_of(shape)))
    read = ((seconds[packs].sum(axis=1).max(), packs.shape[1]) for packs in packs_of_steps(recipe, len(seconds), steps))
    return np.array([arithmetic.step_s(slowest / num_packs, num_packs) for slowest, num_packs in read])


#: What is no number is no step.
NO_STEPS = "".join(
    f" iteration {step}/ 9 | elapsed time per iteration (ms): {time} |\n"
    for step, time in ((1, ".."), (2, "."), ("9" * 5000, 5))
)


def _log(path: Path, times: FloatArray) -> Path:
    lines = [
        f" [2026-11-23 10:00:00] iteration {step:8d}/{len(times):8d} | consumed samples: {8 * step:12d} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} | learning rate: 1.0E-06 |"
        for step, seconds in enumerate(times, 1)
    ]
    path.write_text(NO_STEPS + "\n".join(lines) + "\n")
    return path


def test_both_constants_are_found_where_attention_differs_from_step_to_step(tmp_path: Path) -> None:
    lengths = Lengths(runtime=MIXED, share=1.0, origin="")
    times = _step_times(_logged(num_gpus=16), lengths, range(1, 21))
    times[0] *= 10  # kernels are compiled

    found = fit_speed(_log(tmp_path / "run.log", times), _logged(num_gpus=16), lengths, H100)

    assert found.linear == pytest.approx(TRUTH.linear, rel=0.01)
    assert found.attention == pytest.approx(TRUTH.attention, rel=0.05)


def test_of_a_sample_both_are_scaled_alike(tmp_path: Path) -> None:
    whole, sample = (Lengths(runtime=MIXED, share=share, origin="") for share in (1.0, 0.5))
    times = _step_times(_logged(num_gpus=16), whole, range(1, 21))

    found = fit_speed(_log(tmp_path / "run.log", times), _logged(num_gpus=16), sample, H100)

    assert found.linear / found.attention == pytest.approx(Speed().linear / Speed().attention)
    assert TRUTH.attention < found.linear < Speed().linear


@pytest.mark.parametrize(
    ("times", "parallelism", "message"),
    [
        ([1.0, 1.0], {"num_gpus": 16}, "which has 2 step times; allowed: 3 or more"),
        ([2.0] * 5, {}, "parallelism.num_gpus is missing; --calibrate needs"),
        ([0.05] * 5, {"num_gpus": 16}, r"which would be \d+% of the speed of h100-80gb .* Name the recipe and"),
        ([0.001] * 5, {"num_gpus": 16}, "the recipe and the --"),
        ([2.0] * 2000, {"num_gpus": 16}, "those of the recipe .* step is 22; allowed: 1 to"),
    ],
)
def test_logs_of_other_runs(tmp_path: Path, times: list[float], parallelism: dict[str, int], message: str) -> None:
    log = _log(tmp_path / "run.log", np.array(times))

    with pytest.raises(ConfigError, match=message):
        fit_speed(log, _logged(**parallelism), Lengths(runtime=MIXED, share=1.0, origin=""), H100)
