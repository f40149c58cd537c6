"""Which steps of a run are watched."""

from typing import Any

import pytest

from bridgepack.config.recipe.training import GuardConfig


@pytest.mark.parametrize(
    ("settings", "first_step", "expected"),
    [
        ({"first_steps": 2, "every_steps": 10}, 1, [1, 2, 10, 20]),
        ({"first_steps": 2, "every_steps": 10}, 7, [7, 8, 10, 20]),
        ({"first_steps": 3, "every_steps": None}, 1, [1, 2, 3]),
        ({"first_steps": 0, "every_steps": 8}, 1, [8, 16]),
        ({"first_steps": 2, "every_steps": 1}, 18, [18, 19, 20]),
        ({"enabled": False}, 1, []),
    ],
)
def test_first_steps_of_a_job_and_every_so_many(settings: dict[str, Any], first_step: int, expected: list[int]) -> None:
    guard = GuardConfig(**settings)

    assert [step for step in range(first_step, 21) if guard.watches(step, first_step=first_step)] == expected
