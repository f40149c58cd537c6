"""Rules that belong together: they name each other, share a symptom, or come from one entry of the catalogue."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.registry import group_of

_SYMPTOMS = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
_CODE = re.compile(r"\bBP\d{3}\b")
_MOST = 5


def related_rules(rules: Sequence[Rule]) -> dict[str, Mapping[str, str]]:
    """Return code of each rule -> code and summary of related rules, the closest first."""
    summaries = {rule.code: rule.summary for rule in rules}
    sets = list(_related_sets(rules))
    related: dict[str, Mapping[str, str]] = {}
    for code in summaries:
        others = dict.fromkeys(other for codes in sets if code in codes for other in codes)
        nearest = [other for other in others if other != code and other in summaries]
        related[code] = {other: summaries[other] for other in nearest[:_MOST]}
    return related


def _related_sets(rules: Sequence[Rule]) -> Iterator[Sequence[str]]:
    """Yield codes that belong together, the closest first."""
    for rule in rules:
        yield [rule.code, *_CODE.findall(f"{rule.summary} {rule.why} {rule.fix} {rule.evidence}")]
    for line in _SYMPTOMS.read_text(encoding="utf-8").splitlines():
        yield list(dict.fromkeys(_CODE.findall(line)))
    entries = sorted({entry for rule in rules for entry in rule.catalogue_ids})
    for entry in entries:
        yield [rule.code for rule in rules if entry in rule.catalogue_ids]
    for _, group in groupby(rules, key=lambda rule: group_of(rule.code)):
        codes = [rule.code for rule in group]
        yield from ([codes[place], *codes[max(0, place - 1) : place + 2]] for place in range(len(codes)))
