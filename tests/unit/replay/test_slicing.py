import pytest

from bridgepack.errors import ConfigError
from bridgepack.replay.slicing import thd_positions


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: thd_positions([0], 4, 2), "cu_seqlens has 1 entries; allowed: at least 2"),
        (lambda: thd_positions([0, 4], 4, 0), "context_parallel_size is 0; allowed: whole numbers from 1"),
    ],
)
def test_what_cannot_be_cut(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]
