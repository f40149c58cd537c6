"""Lengths -> PackPlan: best fit, first fit, even cost, in row order, and like Megatron-Bridge. No I/O."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from bridgepack.data.packing.best_fit import best_fit_decreasing, equal_cost, longest_first
from bridgepack.data.packing.order import seeded_labels
from bridgepack.geometry import IntArray
from bridgepack.records import PackPlan

ALGORITHMS = ("best_fit_decreasing", "equal_cost", "first_fit_decreasing", "first_fit_shuffle", "sequential")
_NO_CAP = 2**31


def plan_packs(
    runtime_lengths: IntArray,
    *,
    packed_sequence_size: int,
    algorithm: str = "best_fit_decreasing",
    max_sequences_per_pack: int | None = None,
    seed: int = 1234,
) -> PackPlan:
    """Return a plan in which every sequence is in exactly one pack; the same on every machine.

    Lengths have shape [num_sequences] and are physical: with alignment padding. Of the algorithms, `sequential` keeps
    the order and ignores the seed; `first_fit_shuffle` gives the rows of megatron-bridge 0.6.2 for the same seed
    (data/packing/algorithms.py); with the others, the seed orders sequences of equal length, and the packs.
    """
    assert runtime_lengths.min(initial=1) >= 1
    assert runtime_lengths.max(initial=0) <= packed_sequence_size
    cap = max_sequences_per_pack or _NO_CAP
    if algorithm == "best_fit_decreasing":
        order, offsets = best_fit_decreasing(runtime_lengths, packed_sequence_size, cap, seed)
        return PackPlan(sequence_order=order, pack_offsets=offsets, packed_sequence_size=packed_sequence_size)
    if algorithm == "sequential":
        order, bins = np.arange(len(runtime_lengths)), _next_fit(runtime_lengths, packed_sequence_size, cap)
    elif algorithm == "first_fit_shuffle":
        order, bins = _first_fit_shuffle(runtime_lengths, packed_sequence_size, cap, seed)
    else:
        if algorithm == "equal_cost":
            order, bins = equal_cost(runtime_lengths, packed_sequence_size, cap, seed)
        else:
            order = longest_first(runtime_lengths, packed_sequence_size, seed)
            bins = _first_fit(runtime_lengths[order], packed_sequence_size, cap)
        bins = seeded_labels(int(bins.max(initial=-1)) + 1, seed)[bins]
    return _plan(order, bins, packed_sequence_size)


def plan_packs_apart(runtime_lengths: IntArray, sources: IntArray, plan_of: Callable[[IntArray], PackPlan]) -> PackPlan:
    """Return a plan in which every pack holds sequences of one source; `plan_of` plans the lengths of one.

    `sources` is the source of each sequence; shape [num_sequences]. Packs of the sources take turns, so that each
    is spread over the split: 4 packs of a, 2 of b -> a b a a b a.
    """
    assert len(runtime_lengths)
    orders, turns, sizes = [], [], []
    for source in np.unique(sources).tolist():
        members = np.flatnonzero(sources == source)
        plan = plan_of(runtime_lengths[members])
        orders.append(members[plan.sequence_order])
        sizes.append(np.diff(plan.pack_offsets))
        turns.append((np.arange(plan.num_packs) + 0.5) / plan.num_packs)
    places = np.argsort(np.argsort(np.concatenate(turns), kind="stable"), kind="stable")
    order, bins = np.concatenate(orders), np.repeat(places, np.concatenate(sizes))
    return _plan(order, bins, plan.packed_sequence_size)


def _next_fit(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the bin of each sequence in order: [5 3 4 9] with size 10 -> [0 0 1 2]."""
    ends = np.cumsum(lengths)
    offsets = [0]
    while offsets[-1] < len(lengths):
        first = offsets[-1]
        limit = size + int(ends[first] - lengths[first])
        offsets.append(min(int(np.searchsorted(ends, limit, side="right")), first + cap))
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _plan(order: IntArray, bins: IntArray, packed_sequence_size: int) -> PackPlan:
    by_bin = np.argsort(bins, kind="stable")
    num_bins = int(bins.max(initial=-1)) + 1
    offsets = np.zeros(num_bins + 1, dtype=np.int64)
    np.cumsum(np.bincount(bins, minlength=num_bins), out=offsets[1:])
    return PackPlan(sequence_order=order[by_bin], pack_offsets=offsets, packed_sequence_size=packed_sequence_size)


def _runs(lengths: IntArray) -> list[tuple[int, int, int]]:
    """Return (length, start, stop) of each run of equal lengths."""
    cuts = np.flatnonzero(np.diff(lengths)) + 1
    starts = np.concatenate(([0], cuts, [len(lengths)])) if len(lengths) else np.zeros(1, dtype=np.int64)
    return [(int(lengths[a]), int(a), int(b)) for a, b in pairwise(starts)]


def _first_fit_shuffle(lengths: IntArray, size: int, cap: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return sequence indices and their bins, as the host assigns them for this seed.

    The host shuffles the ascending lengths, packs them first-fit, then takes the sequences of each length, permuted,
    from the end. It uses numpy's legacy generator, whose stream is frozen.
    Source: megatron-bridge 0.6.2, data/packing/algorithms.py, create_packing_strategy and fill_packing_strategy.
    """
    generator = np.random.RandomState(seed)
    seeded_lengths = np.sort(lengths)
    generator.shuffle(seeded_lengths)
    bins = _first_fit(seeded_lengths, size, cap)
    by_length = np.argsort(lengths, kind="stable")
    order = np.empty(len(lengths), dtype=np.int64)
    dealt = np.argsort(bins, kind="stable")
    slots = dealt[np.argsort(seeded_lengths[dealt], kind="stable")]
    for _, start, stop in _runs(lengths[by_length]):
        members = by_length[start:stop][generator.permutation(stop - start)]
        order[slots[start:stop]] = members[::-1]
    return order, bins


def _first_fit(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the first bin with room for each length in order, found with a tournament tree over the bins' room."""
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
