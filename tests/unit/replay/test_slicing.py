import pytest

from bridgepack.errors import ConfigError
from bridgepack.replay.slicing import misplaced_tokens, thd_positions


@pytest.mark.parametrize(
    ("offsets", "ranks", "expected"),
    [
        ([0, 8], 2, [[0, 1, 6, 7], [2, 3, 4, 5]]),
        ([0, 4, 12], 2, [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]),
        ([0, 4, 12, 12, 12], 2, [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]),
        ([0, 6], 3, [[0, 5], [1, 4], [2, 3]]),
        ([0, 3], 1, [[0, 1, 2]]),
    ],
)
def test_ranks_get_chunks_from_both_ends_of_every_sequence(
    offsets: list[int], ranks: int, expected: list[list[int]]
) -> None:
    positions = thd_positions(offsets, offsets[-1], ranks)

    assert positions.tolist() == expected
    assert misplaced_tokens(positions, offsets[-1]).tolist() == []


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
