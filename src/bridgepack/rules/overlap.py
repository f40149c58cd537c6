"""Sequences that lie in two splits, found by 8-byte hashes; memory grows with all splits but the largest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.rules.batches import SoundRows

HashArray = npt.NDArray[np.uint64]

#: Odd, so that it has an inverse modulo 2**64: the multiplier of Knuth's 64-bit generator.
_BASE = 6364136223846793005
_INVERSE = pow(_BASE, -1, 1 << 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSequences:
    """Sequences that two splits have in common.

    Attributes:
        split: the smaller split.
        other: the larger split.
        num_sequences: distinct sequences of `split` that `other` holds as well.
        num_distinct: distinct sequences of `split`.
        where: first place in `other`.
    """

    split: str
    other: str
    num_sequences: int
    num_distinct: int
    where: str


class SequenceHasher:
    """Hashes of token sequences, the same wherever in a row or a batch a sequence lies.

    Polynomial modulo 2**64: the sum of `(id + 1) * base ** position`, moved to the sequence's first token by a power
    of the inverse. Wrong matches are a matter of chance, about n**2 / 2**64 for n sequences.
    """

    def __init__(self) -> None:
        self._powers = np.ones(1, dtype=np.uint64)
        self._inverses = np.ones(1, dtype=np.uint64)

    def hashes(self, rows: SoundRows) -> HashArray:
        """Return one hash per sequence; shape [num_sequences], uint64."""
        num_tokens = len(rows.input_ids)
        if num_tokens > len(self._powers):
            self._powers = _powers(_BASE, num_tokens)
            self._inverses = _powers(_INVERSE, num_tokens)
        terms = (rows.input_ids.astype(np.uint64) + np.uint64(1)) * self._powers[:num_tokens]
        return np.add.reduceat(terms, rows.sequence_begin) * self._inverses[rows.sequence_begin]


class OverlapFinder:
    """Finds sequences shared by splits that are added one after the other, the largest last."""

    def __init__(self, *, largest_split: str) -> None:
        self._largest_split = largest_split
        self._hasher = SequenceHasher()
        self._chunks: dict[str, list[HashArray]] = {}
        self._known: dict[str, HashArray] = {}
        self._is_shared: dict[tuple[str, str], npt.NDArray[np.bool_]] = {}
        self._first: dict[tuple[str, str], str] = {}

    def begin(self, split: str) -> None:
        """Start a split: the ones before it are complete."""
        self._known.update((name, np.unique(np.concatenate(chunks))) for name, chunks in self._chunks.items())
        self._chunks = {}
        if split != self._largest_split:
            self._chunks[split] = [np.empty(0, dtype=np.uint64)]

    def add(self, split: str, shard: str, rows: SoundRows) -> None:
        """Take in rows of the split that was started last."""
        if not self._known and split == self._largest_split:
            return
        hashes = self._hasher.hashes(rows)
        if split in self._chunks:
            self._chunks[split].append(np.unique(hashes))
        for name, known in self._known.items():
            if len(known):
                self._match(name, split, known, hashes, lambda sequence: _place(shard, rows, sequence))

    def shared(self) -> tuple[SharedSequences, ...]:
        """Return what was found, in the order in which it was found."""
        return tuple(
            SharedSequences(
                split=split,
                other=other,
                num_sequences=int(np.count_nonzero(is_shared)),
                num_distinct=len(is_shared),
                where=self._first[split, other],
            )
            for (split, other), is_shared in self._is_shared.items()
        )

    def _match(self, name: str, split: str, known: HashArray, hashes: HashArray, place: Callable[[int], str]) -> None:
        nearest = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        is_match = known[nearest] == hashes
        if is_match.any():
            pair = (name, split)
            self._first.setdefault(pair, place(int(np.argmax(is_match))))
            self._is_shared.setdefault(pair, np.zeros(len(known), dtype=np.bool_))[nearest[is_match]] = True


def _place(shard: str, rows: SoundRows, sequence: int) -> str:
    row = rows.row_of_sequence[sequence]
    return f"{shard} row {rows.numbers[row]}, sequence {sequence - rows.start_offsets[row]}"


def _powers(base: int, num_powers: int) -> HashArray:
    factors = np.full(num_powers, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
