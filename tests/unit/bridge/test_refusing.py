"""What `to_bridge` refuses is a finding of `check`, from data, where no host is installed."""

import sys
from typing import Any

import pytest

from bridgepack.bridge.refusing.refusals import refusal_text, refusals_of
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, recipe_of
from tests.support.messages import mentions
from tests.support.refused_overrides import OVERRIDES


@pytest.mark.parametrize(("overrides", "text"), OVERRIDES)
def test_override_that_the_host_does_not_take_is_an_error(overrides: dict[str, Any], text: str) -> None:
    recipe = recipe_of(DENSE, bridge_overrides=overrides)
    said = [refusal_text(finding) for finding in refusals_of(recipe)]

    assert [one for one in said if one.startswith("bridge_overrides.") and text in one] != []
    found = {refusal_text(one) for one in check_target(recipe, CheckOptions(looks_at_files=False)).findings}
    assert set(said) <= found


@pytest.mark.parametrize(
    "overrides",
    [
        *(
            {"mixed_precision": {}},
            {"mixed_precision": "bf16-mixed"},
            {"mixed_precision": {"grad_reduce_in_fp32": False}},
        ),
        *({"model": {"attention_backend": None}}, {"model": {"num_moe_experts": None}}, {"model": {"fp8": None}}),
        *({"model": {"pipeline_dtype": "bfloat16"}}, {"model": {"pipeline_dtype": "torch.bfloat16"}}),
        *({"model": {"layernorm_epsilon": 1}}, {"train": {"train_iters": 500.0}}, {"ft": None}),
        *({"ft": {"enable_ft_package": True}}, {"env_vars": {"MINE": "1"}}, {"dataset": {"dataset_kwargs": {"x": 1}}}),
        {"tokenizer": {"hf_tokenizer_kwargs": {"trust_remote_code": True}, "trust_remote_code": True}},
        {"comm_overlap": {"tp_comm_overlap": False, "overlap_grad_reduce": True}},
    ],
)
def test_override_that_the_host_keeps_is_none(overrides: dict[str, Any]) -> None:
    assert refusals_of(recipe_of(DENSE, bridge_overrides=overrides)) == ()


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("flux_12b_sft_2gpu_h100_bf16_config", "a FluxProvider"),
        ("wan_1_3b_sft_8gpu_h100_bf16_config", "a WanModelProvider"),
        (
            "qwen3_next_80b_a3b_peft",
            "which Megatron-Bridge does not make: PEFT",
        ),
        ("llama32_1b_sft_1gpu_h100_bf61", f"(BP043). Did you mean {DENSE}?"),
    ],
)
def test_model_that_no_config_can_be_made_of_is_an_error(model: str, text: str) -> None:
    (said,) = map(refusal_text, refusals_of(recipe_of(model)))

    assert said.startswith("model.name is ")
    assert text in said


LAYOUT = {"kind": "chat", "messages": [{"from_column": "messages"}]}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"data__validation_fraction": 0.1}, "data.validation_fraction is 0.1; allowed: 0 with packing.mode none: the"),
        ({"data__layout": None}, "data.layout is missing; allowed: {kind: chat, messages: [{from_column: messages}]}"),
        (
            {"data__layout": {**LAYOUT, "tools": "functions"}},
            "data.layout is '{kind: chat, messages: [{from_column: messages}], tools: functions}'; allowed: {kind",
        ),
        (
            {"data__validation": {"path": "b.jsonl", "layout": {**LAYOUT, "ignore": ["id"]}}},
            "data.layout is not the same",
        ),
        (
            {"data__train": ["a.jsonl", "b.jsonl"]},
            "data.train is a list of 2 sources; allowed: one with packing.mode",
        ),
        (
            {"data__validation": {"path": "a.jsonl", "split": "x"}},
            "data.validation is a source with",
        ),
        ({"data__train": "folder"}, "data.train is 'folder'; allowed: a file (.jsonl, .json, .parquet, .arrow, .csv)"),
        (
            {"preprocessing": {"kind": "tokenized"}},
            "preprocessing.kind is tokenized",
        ),
        (
            {"preprocessing": {"kind": "text"}},
            "allowed: chat or prompt_completion",
        ),
        ({"preprocessing__null_content": "auto"}, "null_content is 'auto'; allowed: 'keep' with packing.mode none"),
    ],
)
def test_reading_that_the_host_does_not_do_is_an_error(changes: dict[str, Any], text: str) -> None:
    (said,) = map(refusal_text, refusals_of(recipe_of(DENSE, packing__mode="none", **changes)))

    assert text in said
    assert "(BP852). " in said
    assert refusals_of(recipe_of(DENSE, **changes)) == ()


def test_sources_of_other_kinds_are_refused_where_the_host_reads_them() -> None:
    documents = {"path": "b.jsonl", "layout": {"kind": "text"}}
    sections = {"data__train": ["a.jsonl", documents], "preprocessing__others": [{"kind": "text"}]}
    said = [refusal_text(one) for one in refusals_of(recipe_of(DENSE, packing__mode="in_batch", **sections))]

    assert len(said) == 2
    assert mentions(said[0], "preprocessing.others is a section of ", "kind text; allowed: none")
    assert "packing.mode in_batch: the host" in said[0]
    assert "data.train is a list of 2 sources; allowed: one with packing.mode in_batch" in said[1]
    assert refusals_of(recipe_of(DENSE, **sections)) == ()


def test_overrides_of_a_model_that_is_not_known_here_are_not_judged() -> None:
    recipe = recipe_of("org/unknown", bridge_overrides={"model": {"cp_com_type": "a2a", "num_layers": "abc"}})
    report = check_target(recipe, CheckOptions(select=("BP044", "BP850")))

    assert {rule.code for rule in report.rules_skipped} == {"BP044", "BP850"}
    assert all("org/unknown are not known here" in rule.reason for rule in report.rules_skipped)


def test_no_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "megatron", None)
    recipe = recipe_of(DENSE, bridge_overrides={"model": {"num_layers": "abc"}, "mixed_precision": "foo"})

    assert {finding.code for finding in check_target(recipe, CheckOptions()).findings} >= {"BP850"}
    with pytest.raises(ConfigError, match="cannot be imported"):
        recipe.to_bridge()


@pytest.mark.parametrize(
    ("precision", "override", "found"),
    [
        ("bf16_mixed", {"fp16": True}, {"BP889"}),
        ("bf16_with_fp8_current_scaling_mixed", {"grad_reduce_in_fp32": False}, {"BP928"}),
        ("bf16_mixed", {"grad_reduce_in_fp32": False}, set()),
    ],
)
def test_override_of_one_field_keeps_the_others_of_a_named_precision(
    precision: str, override: dict[str, Any], found: set[str]
) -> None:
    changes = {"precision": {"recipe": precision}, "bridge_overrides": {"mixed_precision": override}}
    recipe = recipe_of(DENSE, packing={"packed_sequence_size": 4100}, **changes)
    report = check_target(recipe, CheckOptions(looks_at_files=False, select=("BP889", "BP928")))

    assert {finding.code for finding in report.findings} == found
