"""Settings that are read by path, and those that leave something out: what is there then, or a reason not to judge."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import RunConfig
from bridgepack.records.messages import with_user_paths
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.loaded import with_host_defaults
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.judging.settings import Settings
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.messages import mentions
from tests.unit.rules.run_cases import RECIPE, base_values, subject_of


def _judged(name: str, /, **overrides: Any) -> CheckReport:
    recipe = SFTRecipe.from_mapping(RECIPE | {"model": {"name": name}, "bridge_overrides": overrides})
    return judge_run(Run(config=config_of_recipe(recipe), versions=target_versions()), RUN_RULES)


def _codes(judged: CheckReport) -> set[str]:
    return {found.code for found in judged.findings}


def _skipped(judged: CheckReport) -> dict[str, str]:
    return {rule.code: rule.reason for rule in judged.rules_skipped}


def test_attention_that_the_family_has_or_has_not() -> None:
    assert {"BP708", "BP709"} <= _codes(_judged("openai/gpt-oss-20b"))
    mended = _judged("openai/gpt-oss-20b", model={"cp_comm_type": "a2a"})
    assert not {"BP708", "BP709"} & _codes(mended)
    assert {"BP708", "BP709"} <= set(mended.rules_run)
    without = _judged("Qwen/Qwen3-8B")
    assert not {"BP708", "BP709", "BP725"} & _codes(without)
    assert {"BP708", "BP709", "BP725", "BP905", "BP917", "BP928"} <= set(without.rules_run)
    assert "BP928" in _judged("Qwen/Qwen3-8B", mixed_precision="bf16_mixed").rules_run
    assert "BP917" in _codes(_judged("deepseek-ai/DeepSeek-V4-Flash"))
    assert "BP901" in _codes(_judged("Qwen/Qwen3-Next-80B-A3B-Instruct"))
    size = {"model": {"seq_length": 4096}, "dataset": {"seq_length": 4096}}  # that of the packs, which they say again
    assert {"BP008", "BP031"} <= set(_judged("Qwen/Qwen3-8B", **size).rules_run)


def test_attention_that_nobody_knows() -> None:
    skipped = _skipped(_judged("some-lab/new-model"))
    assert skipped["BP708"] == skipped["BP917"]
    assert mentions(skipped["BP708"], "family of the model", "not known")
    assert "model.window_size" in _skipped(_judged("mistralai/Mistral-7B-v0.1"))["BP708"]


def test_a_statement_wins() -> None:
    judged = _judged("some-lab/new-model", model={"window_size": [127, 0], "cp_comm_type": None})
    assert mentions(_skipped(judged)["BP708"], "family of the model", "not known")
    full = {"window_size": [127, 0], "experimental_attention_variant": None, "cp_comm_type": "p2p"}
    assert "BP708" in _codes(_judged("some-lab/new-model", model=full))


def test_settings_that_are_complete_need_no_family() -> None:
    subject = subject_of({"set": {"model.window_size": None, "model.hf_model_id": "openai/gpt-oss-20b"}})
    assert subject.model_setting("window_size") is None
    with pytest.raises(CannotJudgeError):
        subject_of({"recipe": True, "set": {"dataset.seed": 1}, "place": "x"}).model_setting("window_size")


_NO_METHOD = {"recompute_method": None, "recompute_num_layers": None}
OWN_NAMES = [
    ("BP024", {"method": {"kind": "lora"}}, ["checkpoint.pretrained"]),
    (
        "BP707",
        {"parallelism": {"context_parallel_size": 4, "cp_comm_type": "a2a+p2p"}},
        ["parallelism.hierarchical_context_parallel_sizes"],
    ),
    (
        "BP834",
        {"bridge_overrides": {"model": {"recompute_granularity": "full", **_NO_METHOD}}},
        ["bridge_overrides.model.recompute_method", "bridge_overrides.model.recompute_num_layers"],
    ),
]


@pytest.mark.parametrize(("code", "sections", "places"), OWN_NAMES)
def test_what_a_recipe_leaves_out_is_named_as_its_own(code: str, sections: dict[str, Any], places: list[str]) -> None:
    recipe = SFTRecipe.from_mapping({**RECIPE, "model": {"name": "Qwen/Qwen3-8B"}, **sections})
    [finding] = check_target(recipe, CheckOptions(select=(code,), looks_at_files=False)).findings
    assert (finding.where, sorted(finding.examples)) == (places[0], places)


def _filled(values: dict[str, Any], *, is_complete: bool = True) -> Mapping[str, Any]:
    config = RunConfig(values=values, is_complete=is_complete, place="saved.yaml")
    filled = with_host_defaults(config, target_versions()).values
    return {name: value for name, value in filled.items() if name in values}


@pytest.mark.parametrize("section", ["dist", "ddp", "rng", "rerun_state_machine", "validation"])
def test_a_saved_config_without_a_section_is_judged_with_what_the_host_makes_of_it(section: str) -> None:
    wrong = {"model.context_parallel_size": 2, "dataset.offline_packing_specs.pad_seq_to_mult": 1}
    judged = judge_run(subject_of({"remove": [section], "set": wrong}), RUN_RULES)
    whole = judge_run(subject_of({"set": wrong}), RUN_RULES)

    assert "BP101" in _codes(judged)
    assert judged.rules_skipped == whole.rules_skipped
    sound = judge_run(subject_of({"remove": [section]}), RUN_RULES).findings
    assert [found.code for found in sound if found.severity == Severity.ERROR] == []


def test_what_is_left_out_has_the_hosts_default_and_what_is_stated_stays() -> None:
    specs = "dataset.offline_packing_specs"
    left_out = [f"{specs}.pad_seq_to_mult", f"{specs}.num_tokenizer_workers", "dataset.dataloader_type"]
    left_out += ["dataset.drop_last", "validation.eval_iters", "rerun_state_machine.check_for_nan_in_loss", "rng.seed"]
    findings = judge_run(subject_of({"remove": left_out}), RUN_RULES).findings
    assert [found for found in findings if found.severity != Severity.ADVICE] == []
    assert "BP003" in _codes(judge_run(subject_of({"remove": [f"{specs}.packed_sequence_size"]}), RUN_RULES))

    values = base_values()
    assert _filled(values) == values
    values["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] = None
    values["dataset"]["dataloader_type"] = None
    assert _filled(values) == values
    values = {"dataset": {"_target_": "a.GPTSFTDatasetConfig"}}
    assert _filled(values, is_complete=False) == values
    target = "megatron.bridge.data.packing.config.PackedSequenceSpecs"
    filled = _filled({"dataset": {**values["dataset"], "offline_packing_specs": {"_target_": target}}, "train": None})
    assert filled["dataset"]["dataloader_type"] == "batch"
    assert filled["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] == 1
    assert filled["train"] is None


VALUES: dict[str, Any] = {
    "model": {"size": 4, "flag": True},
    "peft": None,
    "dataset": {"kwargs": None, "names": ["a", "b"], "text": "8"},
}


def settings(*, is_complete: bool) -> Settings:
    return Settings(
        config=RunConfig(values=VALUES, is_complete=is_complete, place="mine.yaml", user_paths={"a.b": "c"})
    )


def test_absent_is_none_in_a_complete_config_and_a_reason_elsewhere() -> None:
    assert settings(is_complete=True).value("model.new") is None
    assert settings(is_complete=False).value("peft.dim") is None
    with pytest.raises(CannotJudgeError, match=r"model\.new is not set .*mine\.yaml"):
        settings(is_complete=False).value("model.new")
    with pytest.raises(CannotJudgeError) as error:
        settings(is_complete=False).value("a.b")
    config = settings(is_complete=False).config
    told = with_user_paths(error.value.text, config.user_path)
    assert told.startswith("c is not set ")
    assert told.endswith(" mine.yaml")
    assert not settings(is_complete=True).is_stated("model.new")


WRONG = """
integer dataset.text | integer model.flag | integer dataset.kwargs | number_or_none dataset.text | flag model.size
text_or_none dataset.names | text_or_none model.size | mapping dataset.names | class_name dataset.text
"""


@pytest.mark.parametrize("wrong", re.split(r"[|\n]", WRONG.strip()))
def test_a_wrong_kind_is_a_reason(wrong: str) -> None:
    kind, path = wrong.split()
    with pytest.raises(CannotJudgeError):
        getattr(settings(is_complete=True), kind)(path)
