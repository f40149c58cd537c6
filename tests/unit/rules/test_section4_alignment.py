"""Section 4 of the rule catalogue, alignment, paths and artifacts: what validate() accepts is an error or a warning."""

from __future__ import annotations

from typing import Any

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.in_memory_artifact import check
from tests.unit.rules.run_cases import subject_of

SPECS = "dataset.offline_packing_specs"
MULTIPLE, SIZE = f"{SPECS}.pad_seq_to_mult", f"{SPECS}.packed_sequence_size"
TRAIN, VALIDATION = f"{SPECS}.packed_train_data_path", f"{SPECS}.packed_val_data_path"
METADATA = f"{SPECS}.packed_metadata_path"
CONTEXT, TENSOR = "model.context_parallel_size", "model.tensor_model_parallel_size"
HOST_PACKS = {TRAIN: None, VALIDATION: None, METADATA: None}
PACKS = {
    "/data/packed/training/shard-00000.idx.parquet": 10,
    "/data/packed/validation/shard-00000.idx.parquet": 10,
    "/data/packed/bridge_metadata.json": 1,
}
#: Runtime lengths 3 and 2.
ROW = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]]


def reported(case: dict[str, Any]) -> dict[str, Severity]:
    """Return code -> severity of what is an error or a warning."""
    findings = judge_run(subject_of(case), RUN_RULES).findings
    return {finding.code: Severity(finding.severity) for finding in findings if finding.severity != Severity.ADVICE}


def sizes(tokens: int) -> dict[str, Any]:
    return {SIZE: tokens, "model.seq_length": tokens, "dataset.seq_length": tokens}


def test_case_01_multiple_does_not_cover_context_parallelism() -> None:
    assert reported({"set": {CONTEXT: 2, MULTIPLE: 1}})["BP101"] == Severity.ERROR
    assert "BP101" not in reported({"set": {CONTEXT: 2, MULTIPLE: 4}})


def test_case_01_shipped_recipe_derives_the_multiple_too_early() -> None:
    place = "megatron.bridge.recipes.llama:llama3_8b_sft_config"
    assert reported({"place": place})["BP105"] == Severity.WARNING
    assert reported({"place": place, "set": {CONTEXT: 2}})["BP101"] == Severity.ERROR


def test_case_02_artifact_of_another_multiple() -> None:
    artifact = {"packed_sequence_size": 4096, "pad_seq_to_mult": 1, "rows": {"training": [ROW], "validation": [ROW]}}
    codes = reported({"set": {CONTEXT: 2, MULTIPLE: 4}, "artifact": artifact})
    assert codes["BP106"] == Severity.ERROR
    assert codes["BP121"] == Severity.WARNING


def test_case_03_packs_shorter_than_sequences() -> None:
    assert reported({"set": {**HOST_PACKS, SIZE: 2048}})["BP008"] == Severity.ERROR


def test_case_04_packs_longer_than_seq_length() -> None:
    assert reported({"set": {SIZE: 8192}})["BP042"] == Severity.WARNING


def test_case_05_pack_does_not_divide() -> None:
    assert reported({"set": {**sizes(4098), CONTEXT: 2, MULTIPLE: 4}})["BP103"] == Severity.ERROR
    by_tensor = {**sizes(4100), CONTEXT: 2, TENSOR: 4, "model.sequence_parallel": True, MULTIPLE: 4}
    assert reported({"set": by_tensor})["BP102"] == Severity.ERROR


def test_case_06_row_wider_than_pack() -> None:
    row = [list(range(11, 29)), [0] + [1] * 16 + [0], [0]]
    artifact = {"packed_sequence_size": 4096, "rows": {"training": [row], "validation": [ROW]}}
    assert reported({"set": sizes(16), "artifact": artifact})["BP107"] == Severity.ERROR


def test_case_08_metadata_path_as_text() -> None:
    assert reported({"set": {**HOST_PACKS, METADATA: "/data/metadata.json"}})["BP205"] == Severity.ERROR


def test_case_09_npy_missing() -> None:
    case = {"set": {TRAIN: "/data/packed/training.npy"}, "files": PACKS}
    assert reported(case)["BP203"] == Severity.ERROR


def test_case_10_parquet_missing() -> None:
    case = {"set": {TRAIN: "/data/packed/training_4096.idx.parquet"}, "files": PACKS}
    assert reported(case)["BP204"] == Severity.ERROR
    assert "BP204" not in reported({"files": PACKS})


def test_case_11_npy_without_metadata() -> None:
    assert reported({"set": {TRAIN: "/data/packed/training.npy", METADATA: None}})["BP215"] == Severity.ERROR


def test_case_12_validation_path_missing() -> None:
    assert reported({"set": {VALIDATION: None}})["BP206"] == Severity.WARNING
    assert reported({"set": {VALIDATION: None}, "files": PACKS})["BP221"] == Severity.ERROR


def test_case_14_multiple_of_dataset_kwargs() -> None:
    kwargs = {"pad_to_max_length": True, "pad_seq_length_to_mult": 4}
    changes = {**HOST_PACKS, MULTIPLE: 8, "dataset.dataset_kwargs": kwargs}
    assert reported({"set": changes})["BP111"] == Severity.WARNING
    assert reported({"set": {**changes, CONTEXT: 4}})["BP119"] == Severity.ERROR


def test_case_20_test_split_does_not_divide() -> None:
    assert reported(_wide_need({"dataset.do_test": True}))["BP207"] == Severity.WARNING


def test_case_32_row_width_without_pad_to_max_length() -> None:
    assert reported(_wide_need({MULTIPLE: 8}))["BP112"] == Severity.ERROR


def _wide_need(changes: dict[str, Any]) -> dict[str, Any]:
    """Return a run whose rows must be a multiple of 32 wide and are one of 16."""
    topology = {CONTEXT: 4, TENSOR: 8, "model.sequence_parallel": True, "dataset.dataset_kwargs": None}
    return {"set": {**topology, MULTIPLE: 8, **changes}, "world_size": 32}


def test_case_34_pipeline_without_batch_loader() -> None:
    changes = {"model.pipeline_model_parallel_size": 2, "dataset.dataset_kwargs": None}
    num_checked = 0
    for loader in ("single", "cyclic"):
        assert reported({"set": {**changes, "dataset.dataloader_type": loader}})["BP114"] == Severity.ERROR
        num_checked += 1
    assert num_checked > 0


def test_case_35_padded_boundaries_with_stale_metadata() -> None:
    entry = {"dataset_max_seqlen": 2, "max_samples_per_bin": 1, "min_packed_seqlen": 6, "pack_size": 16}
    findings = check({"rows": {"training": [ROW]}, "set": {"metadata/content": [entry, entry]}}).findings
    assert {"BP405", "BP406", "BP407", "BP408"} <= {finding.code for finding in findings}


def test_case_35_padded_boundaries_without_metadata() -> None:
    padded = {f"{SPECS}.pad_cu_seqlens": True}
    assert reported({"set": {**padded, METADATA: None}})["BP421"] == Severity.ERROR
    artifact = {"packed_sequence_size": 4096, "set": {"metadata/exists": False, "metadata/content": None}}
    assert reported({"set": padded, "artifact": artifact})["BP421"] == Severity.ERROR


def test_case_36_stale_cached_packs() -> None:
    folder = "/data/chats/packed/meta-llama--Llama-3.2-1B_pad_seq_to_mult1_sft_0123456789ab"
    cache, raw = f"{folder}/training_4096.idx.parquet", "/data/chats/training.jsonl"
    template = "/models/llama/chat_template.jinja"
    case = {
        "set": {**HOST_PACKS, "tokenizer.tokenizer_model": "/models/llama", f"{SPECS}.tokenizer_model_name": "packs"},
        "files": {cache: 10, raw: 100, template: 1},
        "modified": {cache: 10.0, raw: 20.0, template: 30.0},
    }
    codes = reported(case)
    assert {code: codes.get(code) for code in ("BP208", "BP209", "BP210")} == {
        "BP208": Severity.WARNING,
        "BP209": Severity.WARNING,
        "BP210": Severity.WARNING,
    }


def test_case_38_hybrid_context_parallelism() -> None:
    assert reported({"set": {"model.hybrid_context_parallel": True}})["BP951"] == Severity.ERROR
    assert reported({"set": {"model.max_seqlen_per_dp_cp_rank": 4096}})["BP956"] == Severity.WARNING


def test_case_39_multiple_does_not_cover_evaluation() -> None:
    shared = {CONTEXT: 2, MULTIPLE: 4, "dist.eval_context_parallel_size": 4}
    own = {**shared, "dist.use_decentralized_pg": True, "dist.use_gloo_process_groups": False}
    assert reported({"set": own})["BP101"] == Severity.ERROR
    assert "BP101" not in reported({"set": {**own, MULTIPLE: 8}})
    assert "BP101" not in reported({"set": {**own, "validation.eval_iters": 0}})
    assert reported({"set": shared})["BP953"] == Severity.WARNING  # it evaluates with the groups of training
    assert "BP101" not in reported({"set": shared})


def test_case_43_folder_with_training_and_validation() -> None:
    files = {"/data/packs/training_4096.idx.parquet": 10, "/data/packs/validation_4096.idx.parquet": 10}
    assert reported({"set": {TRAIN: "/data/packs"}, "files": {**PACKS, **files}})["BP212"] == Severity.ERROR


def test_case_45_rows_of_other_producers() -> None:
    ids, mask, _ = ROW
    final_boundary = check({"rows": {"training": [[ids, mask, [0, 4, 7]]]}})
    unshifted = check({"rows": {"training": [[[11, 12, 13, 2], [0, 0, 1, 1], [0]]]}})
    as_npy = {
        "shards/training/0/format": "npy",
        "shards/training/0/row_group_rows": [],
        "shards/training/0/row_group_tokens": [],
        "shards/training/0/value_types": {"seq_start_id": ["numpy.ndarray"]},
    }
    numpy_values = check({"rows": {"training": [ROW]}, "set": as_npy})
    assert "BP305" in {finding.code for finding in final_boundary.findings}
    assert "BP309" in {finding.code for finding in unshifted.findings}
    assert "BP313" in {finding.code for finding in numpy_values.findings}
