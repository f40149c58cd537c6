"""Every entry of the rule catalogue is accounted for: by rules, by construction, or with the reason why not."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.rules.registry import ALL_RULES

#: Entries of each area: first and last number. Together 236.
AREAS = """
PSB 1-28 101-118 201-220 301-324 401-411 501-527 601-617 701-723 801-815 901-914
PSC 101-109 201-211 301-304 401-415
"""
IDS = {
    f"{area}{number:03}"
    for area, *spans in map(str.split, AREAS.strip().splitlines())
    for first, last in (map(int, span.split("-")) for span in spans)
    for number in range(first, last + 1)
}
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
