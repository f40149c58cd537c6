"""A saved config that leaves fields out is judged with what the host's classes have there."""

from __future__ import annotations

from typing import Any

from bridgepack.records import RunConfig
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.loaded import with_host_defaults
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import base_values, subject_of

SPECS = "dataset.offline_packing_specs"
LEFT_OUT = (
    f"{SPECS}.pad_seq_to_mult",
    f"{SPECS}.num_tokenizer_workers",
    "dataset.dataloader_type",
    "dataset.drop_last",
    "validation.eval_iters",
    "rerun_state_machine.check_for_nan_in_loss",
    "rng.seed",
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


def test_fields_are_filled_at_every_depth() -> None:
    target = "megatron.bridge.data.packing.config.PackedSequenceSpecs"
    dataset = {"_target_": "a.GPTSFTDatasetConfig", "offline_packing_specs": {"_target_": target}}
    values = with_host_defaults(_config({"dataset": dataset, "train": None})).values
    assert values["dataset"]["dataloader_type"] == "batch"
    assert values["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] == 1
    assert values["train"] is None


def test_settings_that_are_not_complete_are_not_filled() -> None:
    values = {"dataset": {"_target_": "a.GPTSFTDatasetConfig"}}
    assert with_host_defaults(_config(values, is_complete=False)).values == values
