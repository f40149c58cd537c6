"""Configurations that the host accepts and then breaks on: tokens, masks, packs of others (catalogue section 4).

A number is the row of the catalogue's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.in_memory_artifact import check
from tests.unit.rules.run_cases import subject_of

IN_BATCH = {
    "_target_": "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig",
    "enable_in_batch_packing": True,
    "defer_in_batch_packing_to_step": False,
    "seq_length": 4096,
}
SOUND_ROW = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]]


def _of_run(settings: Mapping[str, Any]) -> dict[str, Severity]:
    findings = judge_run(subject_of({"set": dict(settings)}), RUN_RULES).findings
    return {found.code: Severity(found.severity) for found in findings}


def _of_rows(*rows: Any, **case: Any) -> dict[str, Severity]:
    findings = check({"rows": {"training": list(rows)}, "packed_sequence_size": 64, **case}).findings
    return {found.code: Severity(found.severity) for found in findings}


def test_case_13_chat_template_in_dataset_kwargs() -> None:
    assert _of_run({"dataset.dataset_kwargs.chat_template": "{{ messages }}"})["BP507"] == Severity.ERROR


def test_case_16_answer_only_loss_off() -> None:
    assert _of_run({"dataset.dataset_kwargs.answer_only_loss": False})["BP502"] == Severity.ERROR


def test_case_26_graphs_with_in_batch_packing() -> None:
    found = _of_run({"dataset": IN_BATCH, "train.micro_batch_size": 2, "model.cuda_graph_impl": "transformer_engine"})
    assert found["BP926"] == Severity.ERROR


def test_case_26_in_batch_packing_of_one_row() -> None:
    assert _of_run({"dataset": IN_BATCH})["BP931"] == Severity.ERROR


def test_case_45_final_boundary_stored() -> None:
    assert _of_rows([[11, 12, 13, 2], [0, 1, 1, 0], [0, 4]])["BP305"] == Severity.ERROR


def test_case_45_mask_not_shifted() -> None:
    assert _of_rows([[11, 12, 13, 2], [0, 0, 1, 1], [0]])["BP309"] == Severity.ERROR


def test_case_45_mask_not_shifted_with_text_after_the_end_of_turn() -> None:
    sequences = {"sequence": [[11, 9, 31, 2, 5], [0, 0, 1, 1, 0]], "times": 4}
    others = {"sequence": [[11, 9, 32, 2, 5], [0, 0, 1, 1, 0]], "times": 4}
    more = {"sequence": [[11, 9, 33, 2, 5], [0, 0, 1, 1, 0]], "times": 4}
    assert _of_rows(sequences, others, more)["BP332"] == Severity.WARNING


def test_case_45_numpy_values_in_npy() -> None:
    changes = {
        "shards/training/0/format": "npy",
        "shards/training/0/row_group_rows": [],
        "shards/training/0/row_group_tokens": [],
        "shards/training/0/value_types": {"seq_start_id": ["numpy.ndarray"]},
    }
    assert _of_rows(SOUND_ROW, set=changes)["BP313"] == Severity.ERROR
