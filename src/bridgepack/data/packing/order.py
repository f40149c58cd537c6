"""Random orders that depend only on the seed, not on a library's version."""

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray

#: SplitMix64: the step of its counter, and the multipliers of its finaliser.
GOLDEN_GAMMA, FIRST_MULTIPLIER, SECOND_MULTIPLIER = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def seeded_order(num_items: int, seed: int) -> IntArray:
    """Return a permutation of 0..num_items-1, sorted stably by the upper 16 bits of each number's hash.

    16 bits, because numpy sorts these by counting, in linear time.
    """
    return np.argsort(upper_bits(np.arange(num_items, dtype=np.uint64), seed), kind="stable")


def seeded_labels(num_packs: int, seed: int) -> IntArray:
    """Return each pack's position in a random order of the packs."""
    labels = np.empty(num_packs, dtype=np.int64)
    labels[seeded_order(num_packs, seed + 1)] = np.arange(num_packs)
    return labels


def seeded_hash(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return a well-mixed 64-bit hash of each value; same shape, uint64.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    """
    mixed = values + np.uint64(first_counter(seed))  # wraps around, as do the operations below
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(FIRST_MULTIPLIER)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(SECOND_MULTIPLIER)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def upper_bits(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint16]:
    """Return the upper 16 bits of each value's hash."""
    return (seeded_hash(values, seed) >> np.uint64(48)).astype(np.uint16)


def first_counter(seed: int) -> int:
    """Return the offset added to a value before mixing: `seed` + 1 steps of the counter."""
    return (seed * GOLDEN_GAMMA + GOLDEN_GAMMA) % 2**64
