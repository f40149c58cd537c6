"""Hashes of token sequences: equal sequences have equal hashes, wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.rules.engine.rows import SoundRows

HashArray = npt.NDArray[np.uint64]

#: Odd, so that it has an inverse modulo 2**64: the multiplier of Knuth's 64-bit generator.
_BASE = 6364136223846793005
_INVERSE = pow(_BASE, -1, 1 << 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceHashes:
    """Hashes of the sequences of some rows of one shard, in order.

    Attributes:
        hashes: shape [num_sequences], uint64.
        row_numbers: each row's 0-based index in its shard; shape [num_rows], int64.
        start_offsets: where each row lies in `hashes`; shape [num_rows + 1], int64, from 0.
    """

    hashes: HashArray
    row_numbers: IntArray
    start_offsets: IntArray

    def place(self, index: int) -> str:
        """Return where the sequence of a hash lies in its shard."""
        row = int(np.searchsorted(self.start_offsets, index, side="right")) - 1
        return f"row {self.row_numbers[row]}, sequence {index - self.start_offsets[row]}"


def hash_sequences(rows: SoundRows) -> SequenceHashes:
    """Return hashes that are the same wherever in a row or a batch a sequence lies.

    Polynomial modulo 2**64: the sum of `(id + 1) * base ** position`, moved to the sequence's first token by a power
    of the inverse, then mixed so that every bit is uniform. Wrong matches are a matter of chance, about n**2 / 2**64
    for n sequences.
    """
    num_powers = 1 << (len(rows.input_ids) - 1).bit_length()
    terms = rows.input_ids.astype(np.uint64)
    terms += np.uint64(1)
    terms *= _powers(_BASE, num_powers)[: len(terms)]
    shifts = _powers(_INVERSE, num_powers)[rows.sequence_begin]
    hashes = _mixed(np.add.reduceat(terms, rows.sequence_begin) * shifts)
    return SequenceHashes(hashes=hashes, row_numbers=rows.numbers, start_offsets=rows.start_offsets)


@lru_cache(maxsize=2)
def _powers(base: int, num_powers: int) -> HashArray:
    """Return 1, base, base ** 2, ...; shape [num_powers], uint64. Every batch needs the same ones."""
    factors = np.full(num_powers, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mixed(hashes: HashArray) -> HashArray:
    """Return hashes one to one, each bit depending on all.

    Source: splitmix64's finaliser, Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    mixed = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
