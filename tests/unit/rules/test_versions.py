"""Versions that a run is judged for, the rules that they leave out, and settings under the names of 0.3 to 0.5."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig
from bridgepack.rules.engine.environment import BRIDGE, CORE, ENGINE, target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.loaded import in_current_names
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.small_builds import small_recipe
from tests.unit.rules.run_cases import base_values


def test_by_default_the_target() -> None:
    versions = target_versions()
    target = "megatron-bridge 0.6.2, megatron-core 0.19.2, transformer-engine 2.17.1"
    assert versions.described() == f"{target} (the target of this version of bridgepack)"
    assert versions.are_in({})
    assert versions.are_in({BRIDGE: ">=0.6", ENGINE: "<2.18"})
    assert not versions.are_in({BRIDGE: ">=0.6", CORE: "<0.18"})


INSTALLED = {BRIDGE: "0.6.0", ENGINE: "2.18.0", "numpy": "2.0"}


@pytest.mark.parametrize(
    ("wanted", "installed", "expected"),
    [
        ("0.4.2", None, {BRIDGE: "0.4.2", ENGINE: "2.14.1"}),
        ("0.7.0", None, {BRIDGE: "0.7.0", CORE: "0.19.2"}),
        (None, INSTALLED, {BRIDGE: "0.6.0", CORE: "0.19.2", ENGINE: "2.18.0"}),
        ("0.6.2", INSTALLED, {BRIDGE: "0.6.2", ENGINE: "2.18.0"}),
    ],
    ids=["an older release brings its companions", "a newer one keeps the target's", "installed", "named"],
)
def test_companions(wanted: str | None, installed: dict[str, str] | None, expected: dict[str, str]) -> None:
    versions = target_versions(wanted, installed)
    assert {name: str(versions[name]) for name in expected} == expected
    assert versions.are_in({BRIDGE: "<0.5"}) == (wanted == "0.4.2")


@pytest.mark.parametrize("version", ["0.6.0rc1", "0.6.0.dev3", "0.5.0a1", "0.7.0rc2"])
def test_a_pre_release_is_judged_by_the_rules_of_the_release_it_leads_to(version: str) -> None:
    of_release, of_pre_release = target_versions(Version(version).base_version), target_versions(version)
    assert all(of_pre_release.are_in(rule.versions) == of_release.are_in(rule.versions) for rule in RUN_RULES)


@pytest.mark.parametrize("version", ["0.6.0rc1", "0.6.0.dev3", "0.6.0", "0.6.0+local", "0.5.1", "0.5.1rc1"])
def test_one_side_of_a_version_applies_and_settings_are_read_as_that_side_has_them(version: str) -> None:
    versions = target_versions(version)
    assert versions.are_in({BRIDGE: "<0.6"}) != versions.are_in({BRIDGE: ">=0.6"})
    old = RunConfig(values={"dataset": {"sequence_length": 2048}}, is_complete=True, place="old.yaml")
    assert (in_current_names(old, versions) != old) == versions.are_in({BRIDGE: "<0.6"})


@pytest.mark.parametrize("version", ["latest", "0.2.0", ""])
def test_an_unknown_version_is_a_clear_error(version: str) -> None:
    with pytest.raises(ConfigError, match="--bridge-version is"):
        target_versions(version)


@pytest.mark.parametrize(
    ("version", "judge", "leave_out"),
    [
        ("0.3.1", "BP801 BP969 BP968 BP041 BP006 BP716", "BP015 BP017 BP513 BP719 BP902 BP915 BP924 BP964 BP989"),
        ("0.4.2", "BP801 BP968 BP975 BP041 BP964 BP613 BP526", "BP969 BP017 BP905 BP983 BP038 BP902"),
        ("0.5.1", "BP905 BP974 BP041 BP038 BP613", "BP801 BP968 BP015 BP907 BP526 BP924"),
        ("0.6.0", "BP015 BP937 BP604 BP802 BP989 BP105", "BP801 BP041 BP613 BP974"),
        ("0.6.2", "BP015 BP017 BP604 BP802 BP924", "BP801 BP041 BP937 BP613"),
        ("0.7.0", "BP015 BP017 BP902", "BP604 BP605 BP606 BP802 BP806 BP938 BP939 BP324 BP520 BP105 BP989"),
    ],
)
def test_rules_know_their_versions(version: str, judge: str, leave_out: str) -> None:
    versions, rules = target_versions(version), {rule.code: rule for rule in RUN_RULES}
    assert {code for code in judge.split() if not versions.are_in(rules[code].versions)} == set()
    assert {code for code in leave_out.split() if versions.are_in(rules[code].versions)} == set()


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


def test_an_old_config_breaks_as_it_did() -> None:
    for version in ("0.4.2", "0.5.1"):
        assert _found(_config(DATASET), version) == set()
    assert _found(_config(DATASET, pipeline_model_parallel_size=4), "0.5.1") == set()  # BP801 in 0.4.2: its cases
    split = _config(DATASET, context_parallel_size=2, calculate_per_token_loss=False)
    assert {"BP101", "BP011"} <= _found(split, "0.5.1")
    assert {"BP015", "BP016"} <= _found(split, "0.6.2")
    length = {"_target_": "megatron.bridge.training.config.GPTDatasetConfig", "sequence_length": 2048}
    assert "BP007" in _found(_config(length | {"dataloader_type": "single"}), "0.4.2")
    provider = "megatron.bridge.data.vlm_datasets.hf_provider.HFDatasetConversationProvider"
    in_batch = {"_target_": provider, "pack_sequences_in_batch": True, "dataloader_type": "single"}
    assert "BP931" in _found(_config(in_batch), "0.4.2")
    assert "BP931" not in _found(_config(in_batch | {"pack_sequences_in_batch": False}), "0.4.2")
    assert _found(_config(DATASET | {"packed_sequence_specs": SPECS | {"packed_sequence_size": -1}}), "0.4.2") == {
        *("BP022", "BP041")
    }


def test_paths_are_those_of_the_users_file(tmp_path: Path) -> None:
    old = _config(DATASET, context_parallel_size=2, calculate_per_token_loss=True)
    config = in_current_names(old, target_versions("0.4.2"))
    assert config.user_path("dataset.enable_offline_packing") == "dataset.packed_sequence_specs"
    assert config.user_path("dataset.seq_length") == "dataset.seq_length"
    assert in_current_names(config, target_versions("0.4.2")) == config
    (tmp_path / "old.yaml").write_text(json.dumps(old.values, default=str), encoding="utf-8")
    options = CheckOptions(bridge_version="0.4.2", world_size=8, looks_at_files=False, select=("BP101",))
    [finding] = check_target(tmp_path / "old.yaml", options).findings
    assert finding.where == "dataset.packed_sequence_specs.pad_seq_to_mult"
    assert [change.path for change in finding.changes] == [finding.where]

    recipe = small_recipe("train.jsonl", "tokenizer", model={"name": "nemotron_3_nano_sft_8gpu_h100_bf16_config"})
    [finding] = check_target(recipe, replace(options, select=("BP968",))).findings
    assert finding.where == "packing.mode"
