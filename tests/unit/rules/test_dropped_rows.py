"""Rules on dropped rows: each row is reported once, and the cure of over-long ones is that of their kind."""

from typing import Any

import pytest

from tests.support.messages import mentions
from tests.unit.rules.in_memory_artifact import check

ROW = [[11, 12, 13, 2], [0, 1, 1, 0], [0]]
DROP_RULES = {"BP508", "BP510", "BP519", "BP543"}
RAISED = "Raise packing.max_sequence_length"


def _found(drops: dict[str, int], **changes: Any) -> dict[str, Any]:
    settings = {f"manifest/recipe/{name.replace('__', '/')}": value for name, value in changes.items()}
    report = check(
        {
            "rows": {"training": [{"row": ROW, "times": 100}]},
            "set": {
                "manifest/splits/training/drops": drops,
                "manifest/splits/training/statistics/num_rows_in": 100 + sum(drops.values()),
                **settings,
            },
        }
    )
    return {finding.code: finding for finding in report.findings if finding.code in DROP_RULES}


@pytest.mark.parametrize(
    ("drops", "codes"),
    [
        ({"no_assistant_mask": 10}, {"BP508"}),
        ({"no_assistant_mask": 50}, {"BP543"}),
        ({"over_long": 50}, {"BP543"}),
        ({"missing_field": 50}, {"BP543"}),
        ({"missing_field": 50, "over_long": 10}, {"BP543", "BP510"}),
        ({"no_assistant_mask": 20, "boundary_in_token": 20, "over_long": 30}, {"BP543", "BP508"}),
    ],
)
def test_the_same_rows_are_reported_once(drops: dict[str, int], codes: set[str]) -> None:
    found = _found(drops)

    assert set(found) == codes
    if "BP543" in found:
        reason = max(drops, key=drops.__getitem__)
        assert mentions(
            found["BP543"].found, f"{sum(drops.values())} of {100 + sum(drops.values())} rows ", "dropped; "
        )
        assert f"{drops[reason]} as {reason}" in found["BP543"].found


@pytest.mark.parametrize("num_rows", [10, 50])
@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"kind": "chat"}, f"{RAISED}, or set preprocessing.over_long to split_exchanges, which cuts conversations"),
        ({"kind": "chat", "over_long": "truncate_history"}, f"{RAISED}: one exchange alone"),
        ({"kind": "chat", "loss_mode": "last_turn"}, f"{RAISED}, or set preprocessing.over_long to truncate_history,"),
        ({"kind": "tokenized"}, f"{RAISED}, or set preprocessing.over_long to truncate or split."),
    ],
)
def test_the_cure_of_over_long_rows_is_that_of_their_kind(num_rows: int, settings: Any, cure: str) -> None:
    found = _found({"over_long": num_rows}, preprocessing=settings)

    assert len(found) == 1
    (finding,) = found.values()
    assert finding.fix.startswith(cure)
