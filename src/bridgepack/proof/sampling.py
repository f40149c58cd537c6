"""A seeded sample of things that lie in several files or splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def drawn_of_each(sizes: Sequence[int], num_drawn: int, seed: int) -> Iterator[list[int]]:
    """Yield what a sample over several lists takes of each: ascending indices, counted from the list's first.

    Example: sizes [2, 3], 5 drawn -> [0, 1], [0, 1, 2].
    """
    total = sum(sizes)
    drawn = np.sort(np.random.default_rng(seed).choice(total, size=min(num_drawn, total), replace=False))
    first = 0
    for size in sizes:
        yield (drawn[(drawn >= first) & (drawn < first + size)] - first).tolist()
        first += size
