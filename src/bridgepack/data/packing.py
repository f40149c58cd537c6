"""Lengths -> PackPlan: best-fit and first-fit decreasing, and Megatron-Bridge's first-fit shuffle. Pure, no I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.records import PackPlan

ALGORITHMS = ("best_fit_decreasing", "first_fit_decreasing", "first_fit_shuffle")
_NO_CAP = 2**31


def plan_packs(
    runtime_lengths: IntArray,
    *,
    packed_sequence_size: int,
    algorithm: str = "best_fit_decreasing",
    max_sequences_per_pack: int | None = None,
    seed: int = 1234,
) -> PackPlan:
    """Return a plan in which every sequence lies in exactly one pack; the same for the same arguments, anywhere.

    Args:
        runtime_lengths: shape [num_sequences], physical: alignment padding included.
        packed_sequence_size: runtime tokens a pack can hold.
        algorithm: one of `ALGORITHMS`. The decreasing ones choose at random, by the seed, among sequences of equal
            length and give the packs a random order. `first_fit_shuffle` gives the rows of megatron-bridge 0.6.2
            for the same seed (data/packing/algorithms.py).
        max_sequences_per_pack: most sequences in one pack.
        seed: of all random choices.
    """
    assert runtime_lengths.min(initial=1) >= 1
    assert runtime_lengths.max(initial=0) <= packed_sequence_size
    cap = max_sequences_per_pack or _NO_CAP
    if algorithm == "first_fit_shuffle":
        order, bins = _first_fit_shuffle(runtime_lengths, packed_sequence_size, cap, seed)
    else:
        shuffled = seeded_order(len(runtime_lengths), seed)
        order = shuffled[np.argsort(-runtime_lengths[shuffled], kind="stable")]
        place = {"best_fit_decreasing": _best_fit, "first_fit_decreasing": _first_fit}[algorithm]
        bins = place(runtime_lengths[order], packed_sequence_size, cap)
        bins = _shuffled_labels(bins, seed)
    return _plan(order, bins, packed_sequence_size)


def seeded_order(num_items: int, seed: int) -> IntArray:
    """Return a permutation of 0..num_items-1 that depends on the seed alone, not on a library's version."""
    return np.argsort(seeded_hash(np.arange(num_items, dtype=np.uint64), seed), kind="stable")


def seeded_hash(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return a well-mixed 64-bit hash of each value; same shape, uint64.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    """
    with np.errstate(over="ignore"):
        mixed = values + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _plan(order: IntArray, bins: IntArray, packed_sequence_size: int) -> PackPlan:
    by_bin = np.argsort(bins, kind="stable")
    num_bins = int(bins.max(initial=-1)) + 1
    offsets = np.zeros(num_bins + 1, dtype=np.int64)
    np.cumsum(np.bincount(bins, minlength=num_bins), out=offsets[1:])
    return PackPlan(sequence_order=order[by_bin], pack_offsets=offsets, packed_sequence_size=packed_sequence_size)


def _shuffled_labels(bins: IntArray, seed: int) -> IntArray:
    num_bins = int(bins.max(initial=-1)) + 1
    labels = np.empty(num_bins, dtype=np.int64)
    labels[seeded_order(num_bins, seed + 1)] = np.arange(num_bins)
    return labels[bins]


def _runs(lengths: IntArray) -> list[tuple[int, int, int]]:
    """Return (length, first position, one past the last) of each run of equal lengths."""
    cuts = np.flatnonzero(np.diff(lengths)) + 1
    starts = np.concatenate(([0], cuts, [len(lengths)])) if len(lengths) else np.zeros(1, dtype=np.int64)
    return [(int(lengths[a]), int(a), int(b)) for a, b in pairwise(starts)]


def _best_fit(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the bin of each sequence, the fullest with room; lengths must not increase.

    Works on runs of equal lengths: the fullest bin with room stays the fullest while a run goes into it, so all bins
    with the same room and the same number of sequences are filled in one step, and the number of steps depends on the
    distinct lengths, not on the number of sequences.
    """
    bins = np.empty(len(lengths), dtype=np.int64)
    open_bins = _OpenBins(cap)
    num_bins = 0
    for length, position, stop in _runs(lengths):
        while position < stop:
            room, count, members = open_bins.take_fullest(length) or (size, 0, None)
            per_bin = min(room // length, cap - count)
            if members is None:
                members = np.arange(num_bins, num_bins + -(-(stop - position) // per_bin))
                num_bins += len(members)
            num_full = min(len(members), (stop - position) // per_bin)
            rest = (stop - position) - num_full * per_bin if num_full < len(members) else 0
            num_placed = num_full * per_bin + rest
            num_used = num_full + (rest > 0)
            bins[position : position + num_placed] = np.repeat(members[:num_used], per_bin)[:num_placed]
            position += num_placed
            open_bins.put(room - per_bin * length, count + per_bin, members[:num_full])
            open_bins.put(room - rest * length, count + rest, members[num_full:num_used])
            open_bins.put(room, count, members[num_used:])
    return bins


class _OpenBins:
    """Bins that can take more, grouped by room and number of sequences."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._groups: dict[tuple[int, int], list[IntArray]] = {}
        self._keys: list[tuple[int, int]] = []

    def put(self, room: int, count: int, members: IntArray) -> None:
        if room == 0 or count == self._cap or not len(members):
            return
        key = (room, count)
        if key not in self._groups:
            self._groups[key] = []
            insort(self._keys, key)
        self._groups[key].append(members)

    def take_fullest(self, length: int) -> tuple[int, int, IntArray] | None:
        """Return (room, number of sequences, bins) of the fullest bins with room for `length`, or None."""
        at = bisect_left(self._keys, (length, 0))
        if at == len(self._keys):
            return None
        key = self._keys[at]
        members = self._groups[key].pop()
        if not self._groups[key]:
            del self._groups[key]
            self._keys.pop(at)
        return *key, members


def _first_fit(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the bin of each sequence, the first with room; lengths must not increase.

    Works on runs of equal lengths: the first bin with room takes as many of a run as it can, then the next.
    """
    bins = np.empty(len(lengths), dtype=np.int64)
    room = np.empty(0, dtype=np.int64)
    count = np.empty(0, dtype=np.int64)
    for length, position, stop in _runs(lengths):
        wanted = stop - position
        able = np.minimum(room // length, cap - count)
        able = np.minimum(able, np.maximum(wanted - (np.cumsum(able) - able), 0))
        left = wanted - int(able.sum())
        per_bin = min(size // length, cap)
        fresh = np.full(-(-left // per_bin), per_bin, dtype=np.int64)
        if left:
            fresh[-1] = left - (len(fresh) - 1) * per_bin
        able = np.concatenate((able, fresh))
        room = np.concatenate((room, np.full(len(fresh), size))) - able * length
        count = np.concatenate((count, np.zeros(len(fresh), dtype=np.int64))) + able
        bins[position:stop] = np.repeat(np.arange(len(able)), able)
    return bins


def _first_fit_shuffle(lengths: IntArray, size: int, cap: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return sequence indices and their bins, as the host deals them out for this seed.

    The host shuffles the ascending lengths, packs them first-fit, then deals the sequences of each length, permuted,
    from the end. Its generator is numpy's legacy one, whose stream is frozen.
    Source: megatron-bridge 0.6.2, data/packing/algorithms.py, create_packing_strategy and fill_packing_strategy.
    """
    generator = np.random.RandomState(seed)
    shuffled = np.sort(lengths)
    generator.shuffle(shuffled)
    bins = _first_fit_in_order(shuffled, size, cap)
    by_length = np.argsort(lengths, kind="stable")
    order = np.empty(len(lengths), dtype=np.int64)
    dealt = np.argsort(bins, kind="stable")
    slots = dealt[np.argsort(shuffled[dealt], kind="stable")]
    for _, start, stop in _runs(lengths[by_length]):
        members = by_length[start:stop][generator.permutation(stop - start)]
        order[slots[start:stop]] = members[::-1]
    return order, bins


def _first_fit_in_order(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the first bin with room for each length in turn, by a tournament tree over the bins' room."""
    num_leaves = 1 << max(len(lengths) - 1, 1).bit_length()
    tree = [size] * (2 * num_leaves)
    counts = [0] * len(lengths)
    bins = np.empty(len(lengths), dtype=np.int64)
    for index, length in enumerate(lengths.tolist()):
        node = 1
        while node < num_leaves:
            node = 2 * node if tree[2 * node] >= length else 2 * node + 1
        leaf = node - num_leaves
        bins[index] = leaf
        counts[leaf] += 1
        tree[node] = tree[node] - length if counts[leaf] < cap else 0
        while node > 1:
            node //= 2
            best = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == best:
                break
            tree[node] = best
    return bins
