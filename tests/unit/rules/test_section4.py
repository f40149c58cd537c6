"""Section 4 of the rule catalogue, what the host accepts and then breaks on: each row has rules that are no advice.

That a rule reports such a configuration is tested with its cases, in tests/rules/cases.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridgepack.rules import find_rule
from bridgepack.rules.engine.rule import Severity

CASES = Path(__file__).parents[2] / "rules" / "cases"
#: Row of the catalogue's table -> codes of its rules.
SECTION_4 = {
    1: "BP101 BP105",
    2: "BP106 BP121",
    3: "BP008",
    4: "BP042",
    5: "BP102 BP103",
    6: "BP107",
    7: "BP010",
    8: "BP205",
    9: "BP203",
    10: "BP204",
    11: "BP215",
    12: "BP206 BP221",
    13: "BP507",
    14: "BP111 BP119",
    15: "BP019",
    16: "BP502",
    17: "BP005",
    18: "BP006 BP038",
    19: "BP604 BP605",
    20: "BP207",
    21: "BP013",
    22: "BP802",
    23: "BP803 BP804",
    24: "BP905",
    25: "BP923",
    26: "BP926 BP931",
    27: "BP704 BP705 BP706 BP708 BP709",
    28: "BP703",
    29: "BP702 BP721",
    30: "BP903 BP904 BP905 BP916",
    31: "BP901",
    32: "BP112 BP930",
    33: "BP808 BP809",
    34: "BP114",
    35: "BP405 BP406 BP407 BP408 BP421",
    36: "BP208 BP209 BP210",
    37: "BP015",
    38: "BP951 BP956",
    39: "BP101 BP953",
    40: "BP964 BP980 BP981",
    41: "BP961 BP962",
    42: "BP607",
    43: "BP212",
    44: "BP610",
    45: "BP305 BP309 BP313 BP332",
    46: "BP032",
}


def test_every_row_is_here() -> None:
    assert sorted(SECTION_4) == list(range(1, 47))


@pytest.mark.parametrize("row", SECTION_4)
def test_its_rules_are_no_advice_and_have_a_bad_case(row: int) -> None:
    for code in SECTION_4[row].split():
        rule = find_rule(code)
        assert rule is not None, code
        assert rule.severity in (Severity.ERROR, Severity.WARNING)
        assert json.loads((CASES / f"{code}.json").read_text(encoding="utf-8"))["bad"]
