"""Versions that a run is judged for, the rules that they leave out, and settings under names before 0.6."""

from typing import Any

import pytest
from packaging.version import Version

from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import BRIDGE, CORE, ENGINE, target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.messages import mentions
from tests.unit.rules.run_cases import base_values


def test_by_default_the_target() -> None:
    versions = target_versions()
    target = "megatron-bridge 0.6.2, megatron-core 0.19.2, transformer-engine 2.17.1"
    assert mentions(versions.describe(), f"{target} (the target of ", "bridgepack)")
    assert versions.are_in({})
    assert versions.are_in({BRIDGE: ">=0.6", ENGINE: "<2.18"})
    assert not versions.are_in({BRIDGE: ">=0.6", CORE: "<0.18"})


INSTALLED = {BRIDGE: "0.6.0", ENGINE: "2.18.0", "numpy": "2.0"}


@pytest.mark.parametrize(
    ("wanted", "installed", "expected"),
    [
        ("0.6.0", None, {BRIDGE: "0.6.0", CORE: "0.19.2", ENGINE: "2.17.1"}),
        ("0.7.0", None, {BRIDGE: "0.7.0", CORE: "0.20.0"}),
        (None, INSTALLED, {BRIDGE: "0.6.0", CORE: "0.19.2", ENGINE: "2.18.0"}),
        ("0.6.2", INSTALLED, {BRIDGE: "0.6.2", ENGINE: "2.18.0"}),
    ],
    ids=["a release brings its companions", "the next brings its own", "installed", "named"],
)
def test_companions(wanted: str | None, installed: dict[str, str] | None, expected: dict[str, str]) -> None:
    versions = target_versions(wanted, installed)
    assert {name: str(versions[name]) for name in expected} == expected


@pytest.mark.parametrize("version", ["0.6.0rc1", "0.6.0.dev3", "0.7.0rc2"])
def test_a_pre_release_is_judged_by_the_rules_of_the_release_it_leads_to(version: str) -> None:
    of_release, of_pre_release = target_versions(Version(version).base_version), target_versions(version)
    assert all(of_pre_release.are_in(rule.versions) == of_release.are_in(rule.versions) for rule in RUN_RULES)


@pytest.mark.parametrize("version", ["latest", "0.2.0", "", "1!0.7", "v0.7", " 0.7"])
def test_an_unknown_version_is_a_clear_error(version: str) -> None:
    with pytest.raises(ConfigError, match="--bridge-version is"):
        target_versions(version)


@pytest.mark.parametrize(
    ("version", "judge", "leave_out"),
    [
        ("0.6.0", "BP015 BP043 BP937 BP604 BP802 BP989 BP105", "BP837"),
        ("0.6.2", "BP015 BP017 BP043 BP604 BP802 BP924", "BP937 BP837 BP045 BP046 BP839"),
        (
            "0.7.0",
            "BP015 BP017 BP043 BP851 BP902 BP606 BP917 BP837 BP045",
            "BP604 BP605 BP802 BP806 BP938 BP105",
        ),
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


def test_an_old_config_is_told_its_new_names() -> None:
    config = _config(DATASET, context_parallel_size=2)
    found = judge_run(Run(config=config, versions=target_versions("0.6.2"), world_size_given=8), RUN_RULES).findings
    assert {"BP015", "BP016"} <= {finding.code for finding in found}
