"""Adapters on recomputed experts, trained with megatron-bridge's own finetune() on CPU: nothing trains; the ways out.

It ends without an error, saves a checkpoint, and the gradient norm is 0 in every step. See test_tiny_recipes.py for
what runs on a machine without a GPU.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from bridgepack.api import build
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support import tiny_recipes as tiny
from tests.support.host_forks import asked
from tests.support.processes import ONE_RANK
from tests.support.small_builds import write_conversations

pytestmark = [pytest.mark.bridge, pytest.mark.full]

_EXPERTS_ALONE: Mapping[str, Any] = {
    "method.target_modules": ["linear_fc1", "linear_fc2"],
    "bridge_overrides.model.recompute_granularity": "selective",
    "bridge_overrides.model.recompute_modules": ["moe"],
}
#: What is done about it -> changes to the recipe.
RUNS: Mapping[str, Mapping[str, Any]] = {
    "nothing": _EXPERTS_ALONE,
    "uniform": {**_EXPERTS_ALONE, "bridge_overrides.model.recompute_method": "uniform"},
    "attention": {**_EXPERTS_ALONE, "method.target_modules": ["linear_qkv", "linear_fc1", "linear_fc2"]},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what each run saw."""
    folder = write_conversations(tmp_path_factory.mktemp("adapters"), limit=200, vocab_size=tiny.VOCAB_SIZE)
    tiny.write_model(folder / "moe", "moe")
    artifact = build(tiny.tiny_recipe(folder, "dense", "full"), output=folder / "packs", num_workers=0).output
    requests = [
        tiny.TinyRequest(
            model="moe",
            method="lora",
            rows="ragged",
            artifact=str(artifact),
            work=str(folder),
            changes={
                **changes,
                "checkpoint.folder": str(folder / name),
                "checkpoint.pretrained": str(folder / f"{name}-weights"),
            },
        )
        for name, changes in RUNS.items()
    ]
    offline = {**ONE_RANK, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    return dict(zip(RUNS, asked("tests.support.tiny_recipes", requests, folder, **offline), strict=True))


def test_nothing_trains_and_the_host_says_nothing(seen: dict[str, dict[str, Any]]) -> None:
    run = seen["nothing"]

    assert run["grad_norms"] == [0.0] * tiny.NUM_STEPS
    assert run["num_skipped_steps"] == 0
    assert run["saved_steps"] == [tiny.NUM_STEPS]
    assert run["adapted_modules"] == ["linear_fc1", "linear_fc2"]


@pytest.mark.parametrize("way_out", ["uniform", "attention"])
def test_ways_out_train(seen: dict[str, dict[str, Any]], way_out: str) -> None:
    assert min(seen[way_out]["grad_norms"]) > 0
    assert seen[way_out]["losses"][0] == pytest.approx(seen["nothing"]["losses"][0], abs=1e-3)


@pytest.mark.parametrize("name", RUNS)
def test_check_says_so(name: str) -> None:
    recipe = tiny.tiny_recipe(tiny.Path("work"), "moe", "lora").override(
        {"model.name": "qwen3_30b_a3b_peft_4gpu_h100_bf16_config", **RUNS[name]}
    )
    rules = [rule for rule in RUN_RULES if rule.code == "BP842"]
    report = judge_run(Run(config=config_of_recipe(recipe), versions=target_versions()), rules)

    assert len(report.findings) == (name == "nothing")
