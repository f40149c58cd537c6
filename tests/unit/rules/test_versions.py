"""Versions that a run is judged for, and which rules they leave out."""

import pytest
from packaging.version import Version

from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig
from bridgepack.rules.engine.environment import BRIDGE, CORE, ENGINE, target_versions
from bridgepack.rules.engine.loaded import in_current_names
from bridgepack.rules.registry import RUN_RULES


def test_by_default_the_target() -> None:
    versions = target_versions()
    assert versions.described() == (
        "megatron-bridge 0.6.2, megatron-core 0.19.2, transformer-engine 2.17.1 "
        "(the target of this version of bridgepack)"
    )
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
    assert [of_pre_release.are_in(rule.versions) for rule in RUN_RULES] == [
        of_release.are_in(rule.versions) for rule in RUN_RULES
    ]


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
