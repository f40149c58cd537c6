"""Cuts shards at row groups into parts of about the same size: what one task judges.

The cut depends on the shards alone, never on the number of workers, so the outcome cannot depend on it either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from bridgepack.records import ShardFacts

#: Stored tokens of a part: a tenth of a second's work, so that progress moves and cores stay busy to the end.
PART_TOKENS = 1 << 23


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPart:
    """Consecutive rows of one shard.

    Attributes:
        split: of the shard.
        shard: its path, relative to the artifact.
        row_groups: row groups of the part; None for a whole shard, whatever its row groups.
        first_row: 0-based index of its first row in the shard.
        num_bytes: its share of the file's size.
    """

    split: str
    shard: str
    row_groups: range | None
    first_row: int
    num_bytes: int


def parts_of(split: str, shard: ShardFacts, *, part_tokens: int | None) -> Iterator[ShardPart]:
    """Yield the parts of a shard in order, cut at the first row group after each `part_tokens` stored tokens.

    Args:
        split: of the shard.
        shard: its facts.
        part_tokens: None leaves it whole.
    """
    num_bytes, num_groups = shard.num_bytes or 0, len(shard.row_group_tokens)
    if part_tokens is None or sum(shard.row_group_tokens) <= part_tokens:
        yield ShardPart(split=split, shard=shard.path, row_groups=None, first_row=0, num_bytes=num_bytes)
        return
    tokens, rows = _before(shard.row_group_tokens), _before(shard.row_group_rows)
    begins = [group for group in range(num_groups) if _begins_part(tokens, group, part_tokens)]
    for begin, end in pairwise([*begins, num_groups]):
        yield ShardPart(
            split=split,
            shard=shard.path,
            row_groups=range(begin, end),
            first_row=rows[begin],
            num_bytes=num_bytes * tokens[end] // tokens[-1] - num_bytes * tokens[begin] // tokens[-1],
        )


def _begins_part(tokens: Sequence[int], group: int, part_tokens: int) -> bool:
    return group == 0 or tokens[group] // part_tokens != tokens[group - 1] // part_tokens


def _before(counts: Sequence[int]) -> Sequence[int]:
    """Return how many come before each place: [3, 4] -> [0, 3, 7]."""
    return list(accumulate(counts, initial=0))
