"""Configurations that the host's validate() accepts and that then break: switches, batches, loss, steps.

The numbers are those of the rule catalogue's section 4.
"""

from __future__ import annotations

from typing import Any

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import subject_of

SPECS = "dataset.offline_packing_specs"
#: Two sequences of 3 and 2 runtime tokens.
ROW = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]]
CUSTOM_DATASET = {"_target_": "my_package.MyProvider", "dataloader_type": "batch", "drop_last": True}


def _severities(case: dict[str, Any]) -> dict[str, str]:
    """Return code -> severity of everything found that is more than advice."""
    findings = judge_run(subject_of(case), RUN_RULES).findings
    return {finding.code: finding.severity for finding in findings if finding.severity != Severity.ADVICE}


def _packs(*, training: int, validation: int) -> dict[str, Any]:
    rows = {"training": [{"row": ROW, "times": training}], "validation": [{"row": ROW, "times": validation}]}
    return {"rows": rows, "packed_sequence_size": 5}


def test_case_03_packs_smaller_than_seq_length() -> None:
    built_by_host = {f"{SPECS}.packed_train_data_path": None, f"{SPECS}.packed_val_data_path": None}

    assert _severities({"set": {f"{SPECS}.packed_sequence_size": 2048, **built_by_host}})["BP008"] == Severity.ERROR


def test_case_04_packs_larger_than_seq_length() -> None:
    assert _severities({"set": {f"{SPECS}.packed_sequence_size": 8192}})["BP042"] == Severity.WARNING


def test_case_07_multiple_is_none() -> None:
    assert _severities({"set": {f"{SPECS}.pad_seq_to_mult": None}})["BP010"] == Severity.ERROR


def test_case_15_unknown_dataset_option() -> None:
    assert _severities({"set": {"dataset.dataset_kwargs.pad_to_max_len": True}})["BP019"] == Severity.ERROR


def test_case_17_evaluation_micro_batch_size() -> None:
    case = {"set": {"validation.eval_micro_batch_size": 2, "validation.eval_global_batch_size": 16}}

    assert _severities(case)["BP005"] == Severity.ERROR


def test_case_18_batch_size_ramp_up() -> None:
    setting = {"train.rampup_batch_size": [8, 8, 1000], "train.global_batch_size": 64}

    assert _severities({"set": setting})["BP038"] == Severity.WARNING
    assert _severities({"set": setting, "versions": {"megatron-core": "0.17.1"}})["BP006"] == Severity.ERROR


def test_case_19_fewer_validation_packs_than_a_batch() -> None:
    assert _severities({"artifact": _packs(training=16, validation=5)})["BP604"] == Severity.ERROR


def test_case_19_fewer_test_rows_than_a_batch() -> None:
    case = {"set": {"dataset.do_test": True}, "files": {"/data/chats/test.jsonl": 3}}

    assert _severities(case)["BP605"] == Severity.ERROR


def test_case_21_per_token_loss_with_average_in_collective() -> None:
    case = {"set": {"model.calculate_per_token_loss": True, "ddp.average_in_collective": True}}

    assert _severities(case)["BP013"] == Severity.ERROR


def test_case_37_old_attribute_names() -> None:
    unpacked = {"dataset.enable_offline_packing": False, SPECS: None}
    old = {"dataset.packed_sequence_specs": {"packed_sequence_size": 4096}}

    assert _severities({"set": {**unpacked, **old}})["BP015"] == Severity.ERROR
    assert _severities({"set": {**unpacked, "dataset.pack_sequences_in_batch": True}})["BP015"] == Severity.ERROR


def test_case_42_steps_of_the_unpacked_run() -> None:
    three_epochs_of_sequences = {"train.train_iters": 3 * 32 // 8, "train.global_batch_size": 8}
    case = {"set": three_epochs_of_sequences, "artifact": _packs(training=16, validation=16)}

    assert _severities(case)["BP607"] == Severity.WARNING


def test_case_44_training_samples_are_packs() -> None:
    assert _severities({"set": {"dataset.max_train_samples": 10000}})["BP610"] == Severity.WARNING


def test_case_46_custom_provider_with_context_parallelism() -> None:
    setting = {
        "dataset": CUSTOM_DATASET,
        "model.context_parallel_size": 2,
        "model.calculate_per_token_loss": False,
    }

    assert _severities({"set": setting})["BP032"] == Severity.WARNING
