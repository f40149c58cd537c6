"""Settings of megatron-bridge 0.3 to 0.5 are judged under the names of 0.6, and reported under their own."""

import json
from pathlib import Path
from typing import Any

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.records import RunConfig
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.loaded import in_current_names
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import base_values

SPECS = {
    "_target_": "megatron.bridge.data.datasets.packed_sequence.PackedSequenceSpecs",
    "packed_sequence_size": 4096,
    **{"pad_seq_to_mult": 1, "pad_cu_seqlens": False, "packed_metadata_path": None, "tokenizer_model_name": None},
    **{"packed_train_data_path": "/data/packed/training", "packed_val_data_path": "/data/packed/validation"},
}
DATASET = {
    "_target_": "megatron.bridge.training.config.FinetuningDatasetConfig",
    "packed_sequence_specs": SPECS,
    "dataset_kwargs": {"pad_to_max_length": True},
    **{"dataset_root": "/data/chats", "seq_length": 4096, "seed": 5678, "max_train_samples": None},
    **{"dataloader_type": "batch", "do_validation": True, "do_test": False, "drop_last": True},
}


def _config(dataset: dict[str, Any], **model: Any) -> RunConfig:
    values = base_values() | {"dataset": dataset}
    values["model"] = {**values["model"], **model}
    return RunConfig(values=values, is_complete=True, place="old.yaml")


def _found(config: RunConfig, version: str) -> set[str]:
    subject = Run(config=config, versions=target_versions(version), world_size_given=8)
    findings = judge_run(subject, RUN_RULES).findings
    return {found.code for found in findings if found.severity != Severity.ADVICE}


def test_an_old_config_is_packed() -> None:
    config = _config(DATASET)
    subject = Run(config=config, versions=target_versions("0.4.2"))
    assert (subject.packs_offline, subject.packed_sequence_size) == (True, 4096)
    assert not Run(config=config, versions=target_versions("0.6.2")).packs_offline


def test_an_old_config_breaks_as_it_did() -> None:
    for version in ("0.4.2", "0.5.1"):
        assert _found(_config(DATASET), version) == set()
    four_stages = _config(DATASET, pipeline_model_parallel_size=4)
    assert _found(four_stages, "0.4.2") == {"BP801"}
    assert _found(four_stages, "0.5.1") == set()
    split = _config(DATASET, context_parallel_size=2, calculate_per_token_loss=False)
    assert {"BP101", "BP011"} <= _found(split, "0.5.1")
    assert {"BP015", "BP016"} <= _found(split, "0.6.2")
    length = {"_target_": "megatron.bridge.training.config.GPTDatasetConfig", "sequence_length": 2048}
    assert "BP007" in _found(_config(length | {"dataloader_type": "single"}), "0.4.2")
    provider = "megatron.bridge.data.vlm_datasets.hf_provider.HFDatasetConversationProvider"
    in_batch = {"_target_": provider, "pack_sequences_in_batch": True, "dataloader_type": "single"}
    assert "BP931" in _found(_config(in_batch), "0.4.2")
    assert "BP931" not in _found(_config(in_batch | {"pack_sequences_in_batch": False}), "0.4.2")


def test_only_a_positive_size_packs() -> None:
    config = _config(DATASET | {"packed_sequence_specs": SPECS | {"packed_sequence_size": -1}})
    assert not Run(config=config, versions=target_versions("0.4.2")).packs_offline
    assert _found(config, "0.4.2") == {"BP041"}
    assert _found(_config(DATASET | {"packed_sequence_specs": None}), "0.4.2") == set()


def test_paths_are_those_of_the_users_file() -> None:
    config = in_current_names(_config(DATASET), target_versions("0.4.2"))
    assert config.user_path("dataset.offline_packing_specs.pad_seq_to_mult") == (
        "dataset.packed_sequence_specs.pad_seq_to_mult"
    )
    assert config.user_path("dataset.enable_offline_packing") == "dataset.packed_sequence_specs"
    assert config.user_path("dataset.seq_length") == "dataset.seq_length"
    again = in_current_names(config, target_versions("0.4.2"))
    assert again == config
    assert in_current_names(_config(DATASET), target_versions("0.6.0")) == _config(DATASET)


def test_findings_and_changes_name_the_old_paths(tmp_path: Path) -> None:
    values = _config(DATASET, context_parallel_size=2, calculate_per_token_loss=True).values
    specs = values["dataset"]["packed_sequence_specs"]
    assert specs["pad_seq_to_mult"] == 1
    file = tmp_path / "old.yaml"
    file.write_text(json.dumps(values, default=str), encoding="utf-8")
    options = CheckOptions(bridge_version="0.4.2", world_size=8, looks_at_files=False, select=("BP101",))
    [finding] = check_target(file, options).findings
    assert finding.where == "dataset.packed_sequence_specs.pad_seq_to_mult"
    assert [change.path for change in finding.changes] == [finding.where]
