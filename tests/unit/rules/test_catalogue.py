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
#: Number of an entry -> `by_construction`: the place in the package that makes it impossible; `not_checkable`: why it,
#: or a part of it, cannot be judged before a run. What rules cover they say themselves, as their source.
NOT_BY_RULES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "rules" / "catalogue.json").read_text(encoding="utf-8")
)


def test_no_entry_is_missing() -> None:
    by_rules = {number for rule in ALL_RULES for number in rule.catalogue_ids}
    assert len(IDS) == 236
    assert by_rules | NOT_BY_RULES.keys() == IDS


def test_the_ids_are_those_of_the_reference(reference_data: Path) -> None:
    file = reference_data / "upstream" / "rules.json"
    if not file.is_file():
        pytest.skip("the reference data has no rule catalogue")
    assert {entry["id"] for entry in json.loads(file.read_text(encoding="utf-8"))} == IDS


def test_every_entry_without_a_rule_has_a_place_or_says_why_not() -> None:
    package = Path(__file__).parents[3] / "src" / "bridgepack"
    places = []
    for number, entry in NOT_BY_RULES.items():
        assert entry.keys() <= {"by_construction", "not_checkable"}, number
        reason = entry.get("by_construction") or entry.get("not_checkable") or ""
        assert len(reason) > 20, number
        if "by_construction" in entry:
            places.append(package / entry["by_construction"].partition(" ")[0].rstrip(":,;"))
    assert [place for place in places if not place.exists()] == []
    assert places
