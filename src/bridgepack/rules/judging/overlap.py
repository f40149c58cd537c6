"""Sequences that are in two splits, found by 8-byte hashes; the hashes of all splits except the largest are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.rules.judging.rows import Rows

HashArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceHashes:
    """Hashes of the sequences of some rows of one shard, in order."""

    hashes: HashArray  #: shape [num_sequences], uint64
    row_numbers: IntArray  #: 0-based index of each row in its shard; shape [num_rows], int64
    start_offsets: IntArray  #: start of each row in `hashes`; shape [num_rows + 1], int64, from 0

    def place(self, index: int) -> tuple[int, int]:
        """Return (0-based pack in its shard, 0-based sequence in that pack) of a hash."""
        row = int(np.searchsorted(self.start_offsets, index, side="right")) - 1
        return int(self.row_numbers[row]), index - int(self.start_offsets[row])


def hash_sequences(rows: Rows) -> SequenceHashes:
    """Return one hash per sequence: the sum of `(id + 1) * base ** position` in the sequence, modulo 2**64.

    The expected number of wrong matches is about n**2 / 2**64 for n sequences.
    """
    num_powers = 1 << (len(rows.input_ids) - 1).bit_length()
    positions = np.arange(len(rows.input_ids)) - np.repeat(rows.sequence_begin, rows.runtime_lengths + 1)
    terms = (rows.input_ids.astype(np.uint64) + np.uint64(1)) * _powers(num_powers)[positions]
    hashes = np.add.reduceat(terms, rows.sequence_begin)
    return SequenceHashes(hashes=hashes, row_numbers=rows.numbers, start_offsets=rows.start_offsets)


@lru_cache(maxsize=1)
def _powers(num_powers: int) -> HashArray:
    """Return 1, base, base ** 2, ...; the base is the multiplier of Knuth's 64-bit generator."""
    factors = np.full(num_powers, 6364136223846793005, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSequences:
    """The sequences that two splits share."""

    split: str  #: the smaller split
    other: str  #: the larger split
    num_sequences: int  #: distinct sequences of `split` that are also in `other`
    num_distinct: int  #: distinct sequences of `split`
    where: str  #: first place in `other`

    @property
    def share(self) -> str:
        """The finding as text: `1 of 3 distinct sequences of validation`."""
        return f"{self.num_sequences} of {self.num_distinct} distinct sequences of {self.split}"


class OverlapFinder:
    """Finds sequences shared by splits, which are added one after the other, the largest last."""

    def __init__(self, *, largest_split: str) -> None:
        self._largest_split = largest_split
        #: Split -> its hashes, in chunks of distinct hashes.
        self._hashes: dict[str, list[HashArray]] = {}
        #: (split, other) -> mask of the split's hashes that are in the other, and the first place there.
        self._matches: dict[tuple[str, str], tuple[npt.NDArray[np.bool_], str]] = {}

    def add(self, split: str, sequences: SequenceHashes, place: Callable[[int], str]) -> None:
        """Add the sequences of one shard; a split's shards in order, and one split after the other.

        `place` names a pack by its 0-based index in the shard.
        """
        for name in self._hashes:
            if name != split:
                self._match((name, split), self._distinct(name), sequences, place)
        if split != self._largest_split:
            self._hashes.setdefault(split, []).append(np.unique(sequences.hashes))

    def shared_sequences(self) -> tuple[SharedSequences, ...]:
        """Return the shared sequences of each pair of splits, in the order found."""
        return tuple(
            SharedSequences(
                split=split,
                other=other_split,
                num_sequences=int(np.count_nonzero(is_shared)),
                num_distinct=len(is_shared),
                where=where,
            )
            for (split, other_split), (is_shared, where) in self._matches.items()
        )

    def _distinct(self, split: str) -> HashArray:
        """Return the distinct hashes of a complete split, ascending; shape [num_distinct], uint64."""
        chunks = self._hashes[split]
        if len(chunks) > 1:
            chunks[:] = [np.unique(np.concatenate(chunks))]
        return chunks[0]

    def _match(
        self, pair: tuple[str, str], hashes: HashArray, sequences: SequenceHashes, place: Callable[[int], str]
    ) -> None:
        nearest = np.minimum(np.searchsorted(hashes, sequences.hashes), len(hashes) - 1)
        is_match = hashes[nearest] == sequences.hashes
        if is_match.any():
            pack, sequence = sequences.place(int(np.argmax(is_match)))
            first = f"{place(pack)}, sequence {sequence}"
            is_shared, _ = self._matches.setdefault(pair, (np.zeros(len(hashes), dtype=np.bool_), first))
            is_shared[nearest[is_match]] = True
