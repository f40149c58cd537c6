"""Every entry of the rule catalogue is accounted for: by rules, by construction, or with the reason why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.rules.registry import ALL_RULES

#: Area -> numbers of the entries in it. Together 236.
AREAS = {
    "PSB0": range(1, 29),
    "PSB1": range(101, 119),
    "PSB2": range(201, 221),
    "PSB3": range(301, 325),
    "PSB4": range(401, 412),
    "PSB5": range(501, 528),
    "PSB6": range(601, 618),
    "PSB7": range(701, 724),
    "PSB8": range(801, 816),
    "PSB9": range(901, 915),
    "PSC1": range(101, 110),
    "PSC2": range(201, 212),
    "PSC3": range(301, 305),
    "PSC4": range(401, 416),
}
IDS = {f"{area[:3]}{number:03}" for area, numbers in AREAS.items() for number in numbers}
#: Number of an entry -> `rules`: their codes; `by_construction`: the place in the package that makes it impossible;
#: `not_checkable`: why it cannot be judged before a run.
CATALOGUE: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "rules" / "catalogue.json").read_text(encoding="utf-8")
)
CODES = {rule.code for rule in ALL_RULES}


def test_no_entry_is_missing() -> None:
    assert len(IDS) == 236
    assert set(CATALOGUE) == IDS


def test_the_ids_are_those_of_the_reference(reference_data: Path) -> None:
    file = reference_data / "upstream" / "rules.json"
    if not file.is_file():
        pytest.skip("the reference data has no rule catalogue")
    assert {entry["id"] for entry in json.loads(file.read_text(encoding="utf-8"))} == IDS


def test_every_entry_has_a_rule_or_says_why_not() -> None:
    for number, entry in CATALOGUE.items():
        assert set(entry) <= {"rules", "by_construction", "not_checkable"}, number
        assert entry, number
        assert set(entry.get("rules", [])) <= CODES, number
        if not entry.get("rules"):
            reason = entry.get("by_construction") or entry.get("not_checkable") or ""
            assert len(reason) > 20, number


def test_the_table_and_the_rules_name_each_other() -> None:
    by_rule = {rule.code: set(rule.catalogue_ids) for rule in ALL_RULES}
    by_entry: dict[str, set[str]] = {code: set() for code in by_rule}
    for number, entry in CATALOGUE.items():
        for code in entry.get("rules", []):
            by_entry[code].add(number)
    assert by_entry == by_rule


def test_places_that_enforce_by_construction_exist() -> None:
    package = Path(__file__).parents[3] / "src" / "bridgepack"
    num_checked = 0
    for number, entry in CATALOGUE.items():
        place = str(entry.get("by_construction", "")).partition(" ")[0].rstrip(":,;")
        if place:
            assert (package / place).exists(), f"{number}: {place}"
            num_checked += 1
    assert num_checked > 0
