"""Random orders that depend only on the seed, not on a library's version."""

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray

#: SplitMix64: the step of its counter, and the multipliers of its finaliser.
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def seeded_order(num_items: int, seed: int) -> IntArray:
    """Return a permutation of 0..num_items-1, sorted stably by the upper 16 bits of each number's hash.

    16 bits, because numpy sorts these by counting, in linear time.
    """
    hashes = seeded_hash(np.arange(num_items, dtype=np.uint64), seed)
    return np.argsort((hashes >> np.uint64(48)).astype(np.uint16), kind="stable")


def seeded_labels(num_packs: int, seed: int) -> IntArray:
    """Return each pack's position in a random order of the packs."""
    labels = np.empty(num_packs, dtype=np.int64)
    labels[seeded_order(num_packs, seed + 1)] = np.arange(num_packs)
    return labels


def seeded_hash(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return a well-mixed 64-bit hash of each value; same shape, uint64.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    """
    hashes = values + np.uint64((seed + 1) * _GAMMA % 2**64)  # wraps around, as do the operations below
    hashes ^= hashes >> np.uint64(30)
    hashes *= _FIRST
    hashes ^= hashes >> np.uint64(27)
    hashes *= _SECOND
    hashes ^= hashes >> np.uint64(31)
    return hashes
