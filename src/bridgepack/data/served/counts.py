"""Tells which answer each trained token belongs to."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bridgepack.records import MaskArray

#: (start, stop) in tokens.
Span = tuple[int, int]


def count_trained(mask: MaskArray, spans: Sequence[Span | None]) -> list[int]:
    """Return how many trained tokens each answer has, in order; every trained token counts for one answer.

    `spans` are the tokens of the answers, None where unknown. A run of trained tokens that overlaps a known answer is
    that answer's; the others are shared out in order between the unknown answers around them.

    Example: mask [0, 1, 1, 0, 1], spans [None, (4, 5)] -> [2, 1].
    """
    runs = _runs(mask)
    counts, owners = [0] * len(spans), [_owner(run, spans) for run in runs]
    for (start, stop), owner in zip(runs, owners, strict=True):
        if owner is not None:
            counts[owner] += stop - start
    places_known = [index for index, span in enumerate(spans) if span is not None]
    for before, after in pairwise([-1, *places_known, len(spans)]):
        places_unknown = range(before + 1, after)
        low = 0 if before < 0 else _stop(spans, before)
        high = len(mask) if after == len(spans) else _start(spans, after)
        free = [run for run, owner in zip(runs, owners, strict=True) if owner is None and low <= run[0] < high]
        for index, group in zip(places_unknown, _group(free, len(places_unknown)), strict=True):
            counts[index] += sum(stop - start for start, stop in group)
    return counts


def _runs(mask: MaskArray) -> list[Span]:
    edges = np.flatnonzero(np.diff(mask != 0, prepend=False, append=False)).reshape(-1, 2)
    return [(start, stop) for start, stop in edges.tolist()]


def _owner(run: Span, spans: Sequence[Span | None]) -> int | None:
    """Return the known answer that a run overlaps, the last one that begins before it ends."""
    overlaps = (index for index, span in enumerate(spans) if span and span[0] < run[1] and run[0] < span[1])
    return next(overlaps, None)


def _start(spans: Sequence[Span | None], index: int) -> int:
    span = spans[index]
    assert span is not None
    return span[0]


def _stop(spans: Sequence[Span | None], index: int) -> int:
    span = spans[index]
    assert span is not None
    return span[1]


def _group(runs: Sequence[Span], num_groups: int) -> list[list[Span]]:
    """Return runs in so many groups, in order, divided at the widest gaps; the last groups may be empty."""
    if not num_groups:
        return []
    gaps = sorted(range(1, len(runs)), key=lambda index: runs[index - 1][1] - runs[index][0])[: num_groups - 1]
    bounds = [0, *sorted(gaps), len(runs)]
    groups = [list(runs[start:stop]) for start, stop in pairwise(bounds)]
    return [*groups, *([] for _ in range(num_groups - len(groups)))]
