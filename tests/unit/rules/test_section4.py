"""Section 4 of the rule catalogue, what the host accepts and then breaks on: each row has rules that are no advice.

That a rule reports such a configuration is tested with its cases, in tests/rules/cases.
"""

import pytest

from bridgepack.rules import find_rule
from bridgepack.rules.engine.rule import Severity
from tests.unit.rules.run_cases import cases_of

#: Codes of the rules of each row of the catalogue's table, rows 1 to 46.
SECTION_4 = (
    """
BP101 BP105|BP106 BP121|BP008|BP042|BP102 BP103|BP107|BP010|BP205|BP203|BP204|BP215|BP206 BP221|BP507|BP111 BP119|BP019
BP502|BP005|BP006 BP038|BP604 BP605|BP207|BP013|BP802|BP803 BP804|BP905|BP923|BP926 BP931|BP704 BP705 BP706 BP708 BP709
BP703|BP702 BP721|BP903 BP904 BP905 BP916|BP901|BP112 BP930|BP808 BP809|BP114|BP405 BP406 BP407 BP408 BP421
BP208 BP209 BP210|BP015|BP951 BP956|BP101 BP953|BP964 BP980 BP981|BP961 BP962|BP607|BP212|BP610|BP305 BP309 BP313 BP332
BP032""".strip()
    .replace("\n", "|")
    .split("|")
)


def test_every_row_is_here() -> None:
    assert len(SECTION_4) == 46


@pytest.mark.parametrize("row", SECTION_4)
def test_its_rules_are_no_advice_and_have_a_bad_case(row: str) -> None:
    for code in row.split():
        rule = find_rule(code)
        assert rule is not None, code
        assert rule.severity in (Severity.ERROR, Severity.WARNING)
        assert cases_of(rule, "bad")
