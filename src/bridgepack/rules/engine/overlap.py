"""Sequences that lie in two splits, found by 8-byte hashes in bounded memory.

The hashes of all splits but the largest are kept, at most `MAX_HASHES` of each: 128 MiB, thrice that while they are
sorted. A split with more distinct sequences is sampled by hash value, those below 1/2, 1/4, ... of all 64-bit numbers:
equal sequences have equal hashes, so both splits lose the same ones, and the share that is shared stays an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.rules.engine.hashing import HashArray, SequenceHashes

MAX_HASHES = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSequences:
    """Sequences that two splits have in common.

    Attributes:
        split: the smaller split.
        other: the larger split.
        num_sequences: distinct sequences of `split` that `other` holds as well, among those looked at.
        num_distinct: distinct sequences of `split` that were looked at.
        where: first place in `other`.
        sampled_fraction: share of the distinct sequences that were looked at, 0-1; 1 is all.
    """

    split: str
    other: str
    num_sequences: int
    num_distinct: int
    where: str
    sampled_fraction: float = 1.0

    @property
    def found(self) -> str:
        """What was found, in words: `1 of 3 distinct sequences of validation`; says so where it is a sample."""
        found = f"{self.num_sequences} of {self.num_distinct} distinct sequences of {self.split}"
        return found if self.sampled_fraction == 1 else f"{found}, in a sample of 1 in {1 / self.sampled_fraction:.0f}"


class DistinctHashes:
    """Distinct hashes of a split: all, or those below a power of two where they are too many."""

    def __init__(self, *, max_hashes: int) -> None:
        self._max_hashes = max_hashes
        self._num_halvings = 0
        self._num_pending = 0
        self._chunks: list[HashArray] = [np.empty(0, dtype=np.uint64)]

    @property
    def sampled_fraction(self) -> float:
        """Share of all distinct hashes that is kept, 0-1."""
        return 0.5**self._num_halvings

    def add(self, hashes: HashArray) -> None:
        """Take in hashes."""
        chunk = self._kept(np.unique(hashes))
        self._chunks.append(chunk)
        self._num_pending += len(chunk)
        if self._num_pending >= self._max_hashes:
            self.sorted()

    def sorted(self) -> HashArray:
        """Return the hashes kept, ascending; shape [num_distinct], uint64."""
        if len(self._chunks) > 1:
            hashes = np.unique(np.concatenate(self._chunks))
            while len(hashes) > self._max_hashes:
                self._num_halvings += 1
                hashes = self._kept(hashes).copy()
            self._chunks, self._num_pending = [hashes], 0
        return self._chunks[0]

    def _kept(self, ascending: HashArray) -> HashArray:
        if not self._num_halvings:
            return ascending
        return ascending[: np.searchsorted(ascending, np.uint64(1 << (64 - self._num_halvings)))]


class OverlapFinder:
    """Finds sequences shared by splits that are added one after the other, the largest last."""

    def __init__(self, *, largest_split: str, max_hashes: int = MAX_HASHES) -> None:
        self._largest_split = largest_split
        self._max_hashes = max_hashes
        self._distinct: dict[str, DistinctHashes] = {}
        self._is_shared: dict[tuple[str, str], npt.NDArray[np.bool_]] = {}
        self._first: dict[tuple[str, str], str] = {}

    def add(self, split: str, shard: str, sequences: SequenceHashes) -> None:
        """Take in sequences of one shard; those of a split in their order, no split before another is complete."""
        for name, distinct in self._distinct.items():
            if name != split:
                self._match((name, split), distinct.sorted(), shard, sequences)
        if split != self._largest_split:
            own = self._distinct.setdefault(split, DistinctHashes(max_hashes=self._max_hashes))
            own.add(sequences.hashes)

    def shared(self) -> tuple[SharedSequences, ...]:
        """Return what was found, in the order in which it was found."""
        return tuple(
            SharedSequences(
                split=split,
                other=other,
                num_sequences=int(np.count_nonzero(is_shared)),
                num_distinct=len(is_shared),
                where=self._first[split, other],
                sampled_fraction=self._distinct[split].sampled_fraction,
            )
            for (split, other), is_shared in self._is_shared.items()
        )

    def _match(self, pair: tuple[str, str], known: HashArray, shard: str, sequences: SequenceHashes) -> None:
        if not len(known):
            return
        nearest = np.minimum(np.searchsorted(known, sequences.hashes), len(known) - 1)
        is_match = known[nearest] == sequences.hashes
        if is_match.any():
            self._first.setdefault(pair, f"{shard} {sequences.place(int(np.argmax(is_match)))}")
            self._is_shared.setdefault(pair, np.zeros(len(known), dtype=np.bool_))[nearest[is_match]] = True
