"""Settings that are read by path, and those that leave something out: what is there then, or a reason not to judge."""

import re
from pathlib import PurePosixPath
from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import RunConfig
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.loaded import with_host_defaults
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.settings import Settings
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES
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
    ("model", "code"), [("deepseek-ai/DeepSeek-V4-Flash", "BP917"), ("Qwen/Qwen3-Next-80B-A3B-Instruct", "BP901")]
)
def test_families_that_break(model: str, code: str) -> None:
    assert code in _codes(_judged(model))


def test_packs_narrower_than_the_model_are_judged_once_their_paths_are_known() -> None:
    size = {"model": {"seq_length": 8192}, "dataset": {"seq_length": 8192}}
    assert {"BP008", "BP031"} <= set(_skipped(_judged("Qwen/Qwen3-8B", **size)))


def test_settings_that_are_complete_need_no_family() -> None:
    subject = subject_of({"set": {"model.window_size": None, "model.hf_model_id": "openai/gpt-oss-20b"}})
    assert subject.of_model("window_size") is None
    with pytest.raises(CannotJudgeError):
        subject_of({"recipe": True, "set": {"dataset.seed": 1}, "place": "x"}).of_model("window_size")


def test_fields_that_a_recipe_leaves_out_are_named_as_its_own() -> None:
    recipe = SFTRecipe.from_mapping(RECIPE | {"model": {"name": "Qwen/Qwen3-8B"}, "method": {"kind": "lora"}})
    [finding] = check_target(recipe, CheckOptions(select=("BP024",), looks_at_files=False)).findings
    assert (finding.where, finding.fix) == ("checkpoint.pretrained", "Set checkpoint.pretrained.")


def test_sizes_that_a_recipe_leaves_out_are_named_as_its_own() -> None:
    model, parallelism = {"name": "qwen3_8b_sft_4gpu_h100_bf16_config"}, {"context_parallel_size": 4}
    recipe = SFTRecipe.from_mapping(
        RECIPE | {"model": model, "parallelism": {**parallelism, "cp_comm_type": "a2a+p2p"}}
    )
    [finding] = check_target(recipe, CheckOptions(select=("BP707",), looks_at_files=False)).findings
    assert finding.where == "parallelism.hierarchical_context_parallel_sizes"


def test_settings_of_the_base_without_a_field_are_named_as_overrides() -> None:
    overrides = {"model": {"recompute_granularity": "full"}}
    recipe = SFTRecipe.from_mapping(RECIPE | {"model": {"name": "Qwen/Qwen3-8B"}, "bridge_overrides": overrides})
    [finding] = check_target(recipe, CheckOptions(select=("BP834",), looks_at_files=False)).findings
    assert finding.where == "bridge_overrides.model.recompute_method"
    assert set(finding.examples) == {finding.where, "bridge_overrides.model.recompute_num_layers"}


SPECS = "dataset.offline_packing_specs"
LEFT_OUT = (
    *(f"{SPECS}.pad_seq_to_mult", f"{SPECS}.num_tokenizer_workers", "dataset.dataloader_type", "dataset.drop_last"),
    *("validation.eval_iters", "rerun_state_machine.check_for_nan_in_loss", "rng.seed"),
)


def _config(values: dict[str, Any], *, is_complete: bool = True) -> RunConfig:
    return RunConfig(values=values, is_complete=is_complete, place="saved.yaml")


def test_fields_left_out_are_no_finding() -> None:
    findings = judge_run(subject_of({"remove": list(LEFT_OUT)}), RUN_RULES).findings
    assert {found.code for found in findings if found.severity != Severity.ADVICE} == set()


def test_defaults_that_break_are_found() -> None:
    findings = judge_run(subject_of({"remove": [f"{SPECS}.packed_sequence_size"]}), RUN_RULES).findings
    assert "BP003" in {found.code for found in findings}


def test_what_is_stated_stays() -> None:
    values = base_values()
    assert with_host_defaults(_config(values)).values == values
    values["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] = None
    values["dataset"]["dataloader_type"] = None
    assert with_host_defaults(_config(values)).values == values
    values = {"dataset": {"_target_": "a.GPTSFTDatasetConfig"}}
    assert with_host_defaults(_config(values, is_complete=False)).values == values


def test_fields_are_filled_at_every_depth() -> None:
    target = "megatron.bridge.data.packing.config.PackedSequenceSpecs"
    dataset = {"_target_": "a.GPTSFTDatasetConfig", "offline_packing_specs": {"_target_": target}}
    values = with_host_defaults(_config({"dataset": dataset, "train": None})).values
    assert values["dataset"]["dataloader_type"] == "batch"
    assert values["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] == 1
    assert values["train"] is None


VALUES: dict[str, Any] = {
    "model": {
        "_target_": "a.b.GPTModelProvider",
        **{"size": 4, "flag": True},
        "backend": {"_target_": "E", "_name_": "flash"},
    },
    "peft": None,
    "dataset": {"kwargs": None, "path": PurePosixPath("/data"), "names": ["a", "b"], "text": "8"},
}


def settings(*, is_complete: bool) -> Settings:
    return Settings(
        config=RunConfig(values=VALUES, is_complete=is_complete, place="mine.yaml", user_paths={"a.b": "c"})
    )


def test_absent_is_none_in_a_complete_config_and_a_reason_elsewhere() -> None:
    assert settings(is_complete=True).value("model.new") is None
    assert settings(is_complete=False).value("peft.dim") is None
    with pytest.raises(CannotJudgeError, match=r"model\.new is not set in mine\.yaml"):
        settings(is_complete=False).value("model.new")
    with pytest.raises(CannotJudgeError, match=r"^c\S* is not set in"):
        settings(is_complete=False).value("a.b")
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
