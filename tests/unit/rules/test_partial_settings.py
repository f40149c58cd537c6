"""Settings that are not complete: what the checkpoint decides is known by family, or a reason not to judge."""

from __future__ import annotations

from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import subject_of

RECIPE: dict[str, Any] = {
    "name": "a_recipe",
    "tokenizer": {"name_or_path": "some/tokenizer"},
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"num_gpus": 8, "context_parallel_size": 2},
    "batch": {"global_batch_size": 8},
    "preprocessing": {"kind": "chat"},
    "data": {"train": ["train.jsonl"]},
}


def _judged(name: str, /, **overrides: Any) -> CheckReport:
    recipe = SFTRecipe.from_mapping(RECIPE | {"model": {"name": name}, "bridge_overrides": overrides})
    return judge_run(Run(config=config_of_recipe(recipe), versions=target_versions()), RUN_RULES)


def _codes(judged: CheckReport) -> set[str]:
    return {found.code for found in judged.findings}


def _skipped(judged: CheckReport) -> dict[str, str]:
    return {rule.code: rule.reason for rule in judged.rules_skipped}


def test_attention_that_the_family_has() -> None:
    assert {"BP708", "BP709"} <= _codes(_judged("openai/gpt-oss-20b"))
    mended = _judged("openai/gpt-oss-20b", model={"cp_comm_type": "a2a"})
    assert not {"BP708", "BP709"} & _codes(mended)
    assert {"BP708", "BP709"} <= set(mended.rules_run)


def test_attention_that_the_family_has_not() -> None:
    judged = _judged("Qwen/Qwen3-8B")
    assert not {"BP708", "BP709", "BP725"} & _codes(judged)
    assert {"BP708", "BP709", "BP725", "BP905", "BP917"} <= set(judged.rules_run)


def test_attention_that_nobody_knows() -> None:
    skipped = _skipped(_judged("some-lab/new-model"))
    assert skipped["BP708"] == skipped["BP917"] == "the family of the model is not known"
    assert "model.window_size" in _skipped(_judged("mistralai/Mistral-7B-v0.1"))["BP708"]


def test_a_statement_wins() -> None:
    judged = _judged("some-lab/new-model", model={"window_size": [127, 0], "cp_comm_type": None})
    assert _skipped(judged)["BP708"] == "the family of the model is not known"
    full = {"window_size": [127, 0], "experimental_attention_variant": None, "cp_comm_type": "p2p"}
    assert "BP708" in _codes(_judged("some-lab/new-model", model=full))


@pytest.mark.parametrize(
    ("model", "code"),
    [("deepseek-ai/DeepSeek-V4-Flash", "BP917"), ("Qwen/Qwen3-Next-80B-A3B-Instruct", "BP901")],
)
def test_families_that_break(model: str, code: str) -> None:
    assert code in _codes(_judged(model))


def test_a_recipe_states_its_precision() -> None:
    assert "BP928" in _judged("Qwen/Qwen3-8B").rules_run
    assert "BP928" in _judged("Qwen/Qwen3-8B", mixed_precision="bf16_mixed").rules_run


def test_packs_narrower_than_the_model_are_judged_once_their_paths_are_known() -> None:
    size = {"model": {"seq_length": 8192}, "dataset": {"seq_length": 8192}}
    assert {"BP008", "BP031"} <= set(_skipped(_judged("Qwen/Qwen3-8B", **size)))


def test_settings_that_are_complete_need_no_family() -> None:
    subject = subject_of({"set": {"model.window_size": None, "model.hf_model_id": "openai/gpt-oss-20b"}})
    assert subject.of_model("window_size") is None
    with pytest.raises(CannotJudgeError):
        subject_of({"recipe": True, "set": {"dataset.seed": 1}, "place": "x"}).of_model("window_size")
