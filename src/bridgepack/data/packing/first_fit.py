"""The packing loops compiled by numba: the same plans as numpy's, for data sets where compiled code pays.

Importing this module imports numba and needs the extra `fast`; the first use on a machine compiles for seconds, and
later ones read numba's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bridgepack.data.packing.order import FIRST_MULTIPLIER, SECOND_MULTIPLIER, first_counter
from bridgepack.geometry import IntArray

_FIRST, _SECOND = np.uint64(FIRST_MULTIPLIER), np.uint64(SECOND_MULTIPLIER)
_NUM_HASHES = 1 << 16


def best_fit_decreasing(lengths: IntArray, size: int, cap: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return what `packing_best_fit.best_fit_decreasing` returns."""
    order = _longest_first(lengths, size, np.uint64(first_counter(seed)))
    counts = np.bincount(lengths, minlength=size + 1)
    steps, num_packs = _best_fit_steps(counts, size, min(cap, len(lengths) + 1))
    labels = _shuffled(num_packs, np.uint64(first_counter(seed + 1)))
    result: tuple[IntArray, IntArray] = _laid_out(order, steps, labels)
    return result


def first_fit_in_order(lengths: IntArray, size: int, cap: int) -> IntArray:
    """Return the first pack with room for each length in turn; shape [num_sequences]."""
    packs: IntArray = _first_fit(lengths, size, cap)
    return packs


@njit(cache=True)
def _hash(value: Any, counter: Any) -> Any:
    mixed = np.uint64(value) + counter
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(48)


@njit(cache=True)
def _shuffled(num_items: int, counter: Any) -> Any:
    """Return 0..num_items-1 by hash: the order that `seeded_order` gives."""
    ends = np.zeros(_NUM_HASHES + 1, dtype=np.int64)
    keys = np.empty(num_items, dtype=np.uint16)
    for index in range(num_items):
        keys[index] = _hash(index, counter)
        ends[np.int64(keys[index]) + 1] += 1
    for key in range(_NUM_HASHES):
        ends[key + 1] += ends[key]
    order = np.empty(num_items, dtype=np.int32)
    for index in range(num_items):
        key = keys[index]
        order[ends[key]] = index
        ends[key] += 1
    return order


@njit(cache=True)
def _longest_first(lengths: Any, size: int, counter: Any) -> Any:
    """Return the sequences by length, then hash, then index: two counting sorts of (what is missing, index)."""
    by_hash = np.zeros(_NUM_HASHES + 1, dtype=np.int32)
    by_length = np.zeros(size + 2, dtype=np.int32)
    keys = np.empty(len(lengths), dtype=np.uint16)
    for index in range(len(lengths)):
        key = _hash(index, counter)
        keys[index] = key
        by_hash[np.int64(key) + 1] += 1
        by_length[size - lengths[index] + 1] += 1
    for key in range(_NUM_HASHES):
        by_hash[key + 1] += by_hash[key]
    for missing in range(size + 1):
        by_length[missing + 1] += by_length[missing]
    shuffled = np.empty(len(lengths), dtype=np.int64)
    for index in range(len(lengths)):
        key = keys[index]
        shuffled[by_hash[key]] = (size - lengths[index]) << 32 | index
        by_hash[key] += 1
    order = np.empty(len(lengths), dtype=np.int32)
    for place in range(len(shuffled)):
        item: Any = shuffled[place]
        key = item >> 32
        order[by_length[key]] = np.int32(item & 0xFFFFFFFF)
        by_length[key] += 1
    return order


@njit(cache=True)
def _grown(values: Any) -> Any:
    larger = np.empty((2 * values.shape[0], values.shape[1]), dtype=np.int64)
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            larger[row, column] = values[row, column]
    return larger


@njit(cache=True)
def _fullest(words: Any, length: int) -> Any:
    """Return the least room of at least `length` whose bit is set, or -1."""
    word = length >> 6
    bits = words[word] >> np.uint64(length & 63)
    room = length
    while bits == 0:
        word += 1
        if word == len(words):
            return -1
        bits = words[word]
        room = word << 6
    while bits & np.uint64(0xFF) == 0:
        bits >>= np.uint64(8)
        room += 8
    while bits & np.uint64(1) == 0:
        bits >>= np.uint64(1)
        room += 1
    return room


@njit(cache=True)
def _stack_of(stacks: Any, num_stacks: int, stack_of_room: Any, room: int, already: int) -> Any:
    """Return the stack of packs with this room and number of sequences; number `num_stacks` if it had to be made."""
    before, at = -1, stack_of_room[room]
    while at >= 0 and stacks[at, 0] < already:
        before, at = at, stacks[at, 1]
    if at >= 0 and stacks[at, 0] == already:
        return at
    stacks[num_stacks, 0], stacks[num_stacks, 1], stacks[num_stacks, 2] = already, at, -1
    if before >= 0:
        stacks[before, 1] = num_stacks
    else:
        stack_of_room[room] = num_stacks
    return num_stacks


@njit(cache=True)
def _take(words: Any, stack_of_room: Any, stacks: Any, ranges: Any, room: int) -> Any:
    """Return (sequences, first pack, number of packs) of the top range of a room's first stack, taken off."""
    stack = stack_of_room[room]
    already, top = stacks[stack, 0], stacks[stack, 2]
    stacks[stack, 2] = ranges[top, 2]
    if stacks[stack, 2] < 0:
        stack_of_room[room] = stacks[stack, 1]
        if stack_of_room[room] < 0:
            words[room >> 6] &= ~(np.uint64(1) << np.uint64(room & 63))
    return already, ranges[top, 0], ranges[top, 1]


@njit(cache=True)
def _put(words: Any, stack_of_room: Any, stacks: Any, ranges: Any, room: int, already: int, counts: Any) -> None:
    """Put the range number `counts[1]` on its stack; `counts` has the number of stacks and of ranges."""
    stack = _stack_of(stacks, counts[0], stack_of_room, room, already)
    counts[0] += 1 if stack == counts[0] else 0
    ranges[counts[1], 2] = stacks[stack, 2]
    stacks[stack, 2] = counts[1]
    counts[1] += 1
    words[room >> 6] |= np.uint64(1) << np.uint64(room & 63)


@njit(cache=True)
def _best_fit_steps(counts: Any, size: int, cap: int) -> Any:
    """Return (steps as `best_fit_steps` yields them, number of packs).

    Open packs are ranges (first pack, number of packs, next range of the stack), in stacks (sequences, next stack of
    the room, top range) by room; a bit for each room says whether it has any.
    """
    words = np.zeros((size >> 6) + 1, dtype=np.uint64)
    stack_of_room = np.empty(size + 1, dtype=np.int64)
    for room in range(size + 1):
        stack_of_room[room] = -1
    stacks, ranges = np.empty((64, 3), dtype=np.int64), np.empty((64, 3), dtype=np.int64)
    steps = np.empty((64, 4), dtype=np.int64)
    used_entries = np.zeros(2, dtype=np.int64)
    num_steps = num_packs = 0
    for length in range(len(counts) - 1, 0, -1):
        left = counts[length]
        while left:
            room = _fullest(words, length)
            if room < 0:
                room, already, first, num = size, 0, num_packs, -(-left // min(size // length, cap))
                num_packs += num
            else:
                already, first, num = _take(words, stack_of_room, stacks, ranges, room)
            per_pack = min(room // length, cap - already)
            full = min(num, left // per_pack)
            rest = left - full * per_pack if full < num else 0
            used = full + (1 if rest > 0 else 0)
            steps = _grown(steps) if num_steps == len(steps) else steps
            stacks = _grown(stacks) if used_entries[0] + 3 > len(stacks) else stacks
            ranges = _grown(ranges) if used_entries[1] + 3 > len(ranges) else ranges
            steps[num_steps, 0], steps[num_steps, 1] = first, per_pack
            steps[num_steps, 2], steps[num_steps, 3] = already, full * per_pack + rest
            num_steps += 1
            left -= full * per_pack + rest
            for kind in range(3):
                added = per_pack if kind == 0 else rest if kind == 1 else 0
                many = full if kind == 0 else used - full if kind == 1 else num - used
                if room > added * length and already + added < cap and many > 0:
                    ranges[used_entries[1], 0] = first if kind == 0 else first + full if kind == 1 else first + used
                    ranges[used_entries[1], 1] = many
                    _put(words, stack_of_room, stacks, ranges, room - added * length, already + added, used_entries)
    return steps[:num_steps], num_packs


@njit(cache=True)
def _laid_out(order: Any, steps: Any, packs_in_order: Any) -> Any:
    num_packs = len(packs_in_order)
    label = np.empty(num_packs, dtype=np.int64)
    for place in range(num_packs):
        label[packs_in_order[place]] = place
    offsets = np.zeros(num_packs + 1, dtype=np.int64)
    for step in range(len(steps)):
        first, per_pack, placed = steps[step, 0], steps[step, 1], steps[step, 3]
        for index in range(-(-placed // per_pack)):
            offsets[label[first + index] + 1] += min(per_pack, placed - index * per_pack)
    for pack in range(num_packs):
        offsets[pack + 1] += offsets[pack]
    laid_out = np.empty(len(order), dtype=np.int64)
    position = 0
    for step in range(len(steps)):
        first, per_pack, already, placed = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        for index in range(-(-placed // per_pack)):
            start = offsets[label[first + index]] + already
            for slot in range(min(per_pack, placed - index * per_pack)):
                laid_out[start + slot] = order[position]
                position += 1
    return laid_out, offsets


@njit(cache=True)
def _first_fit(lengths: Any, size: int, cap: int) -> Any:
    """Return the first pack with room for each length, by a tournament tree over the packs' room."""
    num_leaves = 1
    while num_leaves < len(lengths):
        num_leaves *= 2
    tree = np.empty(2 * num_leaves, dtype=np.int64)
    for node in range(2 * num_leaves):
        tree[node] = size
    counts = np.zeros(len(lengths), dtype=np.int64)
    packs = np.empty(len(lengths), dtype=np.int64)
    for index in range(len(lengths)):
        length = lengths[index]
        node = 1
        while node < num_leaves:
            node = 2 * node if tree[2 * node] >= length else 2 * node + 1
        leaf = node - num_leaves
        packs[index] = leaf
        counts[leaf] += 1
        tree[node] = tree[node] - length if counts[leaf] < cap else 0
        while node > 1:
            node //= 2
            best = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == best:
                break
            tree[node] = best
    return packs
