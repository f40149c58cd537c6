"""Versions that a run is judged for, and which rules they leave out."""

from __future__ import annotations

import pytest

from bridgepack.errors import ConfigError
from bridgepack.rules.versions import BRIDGE, CORE, ENGINE, target_versions


def test_by_default_the_target() -> None:
    versions = target_versions()
    assert versions.described() == (
        "megatron-bridge 0.6.2, megatron-core 0.19.2, transformer-engine 2.17.1 "
        "(the target of this version of bridgepack)"
    )
    assert versions.are_in({})
    assert versions.are_in({BRIDGE: ">=0.6", ENGINE: "<2.18"})
    assert not versions.are_in({BRIDGE: ">=0.6", CORE: "<0.18"})


def test_an_older_release_brings_its_companions() -> None:
    versions = target_versions("0.4.2")
    assert str(versions[BRIDGE]) == "0.4.2"
    assert str(versions[ENGINE]) == "2.14.1"
    assert versions.are_in({BRIDGE: "<0.5"})


def test_a_newer_release_keeps_the_targets_companions() -> None:
    assert str(target_versions("0.7.0")[CORE]) == "0.19.2"


def test_the_environment_wins() -> None:
    installed = {BRIDGE: "0.6.0", ENGINE: "2.18.0", "numpy": "2.0"}
    assert [str(target_versions(None, installed)[name]) for name in (BRIDGE, CORE, ENGINE)] == [
        "0.6.0",
        "0.19.2",
        "2.18.0",
    ]
    assert str(target_versions("0.6.2", installed)[BRIDGE]) == "0.6.2"
    assert str(target_versions("0.6.2", installed)[ENGINE]) == "2.18.0"


def test_a_pre_release_counts_as_lower() -> None:
    assert target_versions(None, {CORE: "0.18.0rc0"}).are_in({CORE: "<0.18"})


@pytest.mark.parametrize("version", ["latest", "0.2.0", ""])
def test_an_unknown_version_is_a_clear_error(version: str) -> None:
    with pytest.raises(ConfigError, match="--bridge-version is"):
        target_versions(version)
