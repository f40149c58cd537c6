"""The state of a job array as one."""

import pytest

pytest.importorskip("nemo_run")

from bridgepack.launch.watching import state_of_rows


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ("", "SUBMITTED"),
        ("12_[0-9%1]|PENDING\n", "PENDING"),
        ("12_0|RUNNING\n12_[1-9%1]|PENDING\n", "RUNNING"),
        ("12_0|COMPLETED\n12_[1-9%1]|PENDING\n", "RUNNING"),
        ("12_0|TIMEOUT\n12_1|COMPLETED\n", "SUCCEEDED"),
        ("12_10|COMPLETED\n12_9|FAILED\n", "SUCCEEDED"),
        ("12_0|COMPLETED\n12_1|NODE_FAIL\n", "FAILED"),
        ("12_0|CANCELLED by 1000\n12_[1-9%1]|CANCELLED by 1000\n", "CANCELLED"),
        ("12_0|OF A LATER VERSION\n", "PENDING"),
    ],
)
def test_state_of_an_array(rows: str, state: str) -> None:
    assert state_of_rows(rows).name == state
