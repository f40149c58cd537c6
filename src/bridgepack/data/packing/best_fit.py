"""Best-fit decreasing over runs of equal lengths, in numpy; and packs of even attention cost."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bridgepack.data.packing.order import seeded_labels, seeded_order
from bridgepack.geometry import IntArray

#: Lengths up to this fit in 16 bits, which numpy sorts by counting.
_SHORT = 2**16
#: Up to this many sequences, 32-bit counts suffice, which halves the memory.
_NARROW = 2**31


def best_fit_decreasing(lengths: IntArray, size: int, cap: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return (sequence indices in pack order, offsets of the packs).

    Places sequences longest first, each into the fullest pack that has room; among equally full packs, into one with
    the fewest sequences. The seed orders sequences of equal length, and the packs. Lengths are runtime, shape
    [num_sequences]; a pack holds at most `size` tokens and `cap` sequences.
    """
    counts = np.bincount(lengths, minlength=1)
    distinct = np.flatnonzero(counts)[::-1]
    steps = list(best_fit_steps(distinct.tolist(), counts[distinct].tolist(), size, cap))
    return _lay_out(longest_first(lengths, size, seed), np.array(steps, dtype=np.int64).reshape(-1, 4), seed)


def best_fit_steps(distinct: list[int], counts: list[int], size: int, cap: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first pack, sequences added per pack, sequences already in it, sequences placed), longest first.

    The fullest pack with room stays the fullest while a run of equal lengths goes into it. So neighbouring packs with
    the same room and number of sequences are filled in one step: the number of steps depends on the distinct lengths,
    not on the number of sequences.
    """
    open_packs = _OpenPacks(cap)
    num_packs = 0
    for length, num_left in zip(distinct, counts, strict=True):
        while num_left:
            open_run = open_packs.take_fullest(length)
            if open_run is None:
                per_pack = min(size // length, cap)
                open_run = size, 0, num_packs, -(-num_left // per_pack)
                num_packs += open_run[3]
            room, already, first, num = open_run
            per_pack = min(room // length, cap - already)
            full = min(num, num_left // per_pack)
            remainder = num_left - full * per_pack if full < num else 0
            num_placed = full * per_pack + remainder
            num_used = full + (remainder > 0)
            num_left -= num_placed
            yield first, per_pack, already, num_placed
            open_packs.put(room - per_pack * length, already + per_pack, first, full)
            open_packs.put(room - remainder * length, already + remainder, first + full, num_used - full)
            open_packs.put(room, already, first + num_used, num - num_used)


class _OpenPacks:
    """Packs that have room, as ranges, grouped by room and number of sequences."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._keys: list[tuple[int, int]] = []

    def put(self, room: int, already: int, first: int, num: int) -> None:
        """Add packs `first` to `first + num - 1`, unless they are full."""
        if room == 0 or already == self._cap or num == 0:
            return
        key = (room, already)
        if key not in self._groups:
            insort(self._keys, key)
        self._groups.setdefault(key, []).append((first, num))

    def take_fullest(self, length: int) -> tuple[int, int, int, int] | None:
        """Return (room, number of sequences, first pack, number of packs) of the fullest packs with room, or None."""
        at = bisect_left(self._keys, (length, 0))
        if at == len(self._keys):
            return None
        key = self._keys[at]
        ranges = self._groups[key]
        first, num = ranges.pop()
        if not ranges:
            del self._groups[key]
            self._keys.pop(at)
        return *key, first, num


def longest_first(lengths: IntArray, size: int, seed: int) -> IntArray:
    """Return sequence indices, longest first, equal lengths ordered by the seed; shape [num_sequences], int64."""
    seed_order = seeded_order(len(lengths), seed)
    missing = size - lengths
    if size <= _SHORT:
        missing = missing.astype(np.uint16)
    return seed_order[np.argsort(missing[seed_order], kind="stable")]


def _lay_out(order: IntArray, steps: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    narrow: Any = np.int32 if len(order) < _NARROW else np.int64
    first, per_pack, already, num_placed = steps.astype(narrow).T
    position = np.arange(len(order), dtype=narrow)
    position -= np.repeat(np.cumsum(num_placed, dtype=narrow) - num_placed, num_placed)
    pack, slot = np.divmod(position, np.repeat(per_pack, num_placed))
    del position
    pack += np.repeat(first, num_placed)
    slot += np.repeat(already, num_placed)
    num_packs = int((first + -(-num_placed // per_pack)).max(initial=0))
    pack = seeded_labels(num_packs, seed).astype(narrow)[pack]
    offsets = np.zeros(num_packs + 1, dtype=np.int64)
    np.cumsum(np.bincount(pack, minlength=num_packs), out=offsets[1:])
    slot += offsets[:-1].astype(narrow)[pack]
    del pack
    laid_out = np.empty(len(order), dtype=np.int64)
    laid_out[slot] = order
    return laid_out, offsets


#: Maximum fraction of packs more than best fit, as the price of evenness.
_EXTRA_PACKS = 0.001
#: Fraction of the sequences, the shortest, that fill the packs up by best fit: the smallest that suffices.
_CLOSING = (0.0, 0.2, 0.6)


def equal_cost(lengths: IntArray, size: int, cap: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return (sequence indices, pack of each) with at most 0.1% more packs than best fit; otherwise best fit's plan.

    A pack's cost is the sum of its squared lengths, as for attention; the token cost of full packs is equal anyway.
    Lengths are runtime, shape [num_sequences].

    Source: longest processing time first (Graham: Bounds on Multiprocessing Timing Anomalies, 1969), restricted to
    packs with room.
    """
    best_order, best_offsets = best_fit_decreasing(lengths, size, cap, seed)
    num_needed = len(best_offsets) - 1
    order = longest_first(lengths, size, seed)
    descending = lengths[order].tolist()
    for closing in _CLOSING:
        packs = _Packs(size, cap, num_needed)
        num_spread = max(round(len(descending) * (1 - closing)), num_needed)
        packs.lay_cheapest_first(descending[:num_spread])
        packs.lay_fullest_first(descending[num_spread:])
        if len(packs.rooms) <= num_needed * (1 + _EXTRA_PACKS):
            return order, np.array(packs.chosen, dtype=np.int64)
    return best_order, np.repeat(np.arange(num_needed), np.diff(best_offsets))


@dataclass
class _Packs:
    size: int  #: runtime tokens of a pack
    cap: int  #: maximum sequences in one pack
    num_packs: int  #: initial number of packs
    rooms: list[int] = field(init=False)  #: per pack, tokens that still fit
    counts: list[int] = field(init=False)  #: per pack, sequences
    chosen: list[int] = field(default_factory=list)  #: pack of each sequence placed so far

    def __post_init__(self) -> None:
        self.rooms, self.counts = [self.size] * self.num_packs, [0] * self.num_packs

    def lay_cheapest_first(self, descending: list[int]) -> None:
        """Put each sequence into the cheapest pack with room; packs without room wait for a shorter one."""
        cheapest, waiting = [(0, pack) for pack in range(len(self.rooms))], list[tuple[int, int, int]]()
        for length in descending:
            while waiting and -waiting[0][0] >= length:
                heapq.heappush(cheapest, heapq.heappop(waiting)[1:])
            while cheapest and self.rooms[cheapest[0][1]] < length:
                cost, pack = heapq.heappop(cheapest)
                heapq.heappush(waiting, (-self.rooms[pack], cost, pack))
            cost, pack = cheapest[0] if cheapest else (0, len(self.rooms))
            if not cheapest:
                cheapest.append((cost, pack))
            self._lay(length, pack)
            if self.counts[pack] < self.cap:
                heapq.heapreplace(cheapest, (cost + length * length, pack))
            else:
                heapq.heappop(cheapest)

    def lay_fullest_first(self, descending: list[int]) -> None:
        """Put each sequence into the fullest pack with room."""
        open_packs = _OpenPacks(self.cap)

        def put(pack: int) -> None:
            if self.counts[pack] < self.cap:
                open_packs.put(self.rooms[pack], 0, pack, 1)

        for pack in range(len(self.rooms)):
            put(pack)
        for length in descending:
            open_run = open_packs.take_fullest(length)
            pack = len(self.rooms) if open_run is None else open_run[2]
            self._lay(length, pack)
            put(pack)

    def _lay(self, length: int, pack: int) -> None:
        if pack == len(self.rooms):
            self.rooms.append(self.size)
            self.counts.append(0)
        self.rooms[pack] -= length
        self.counts[pack] += 1
        self.chosen.append(pack)
