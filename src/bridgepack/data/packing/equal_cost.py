"""Packs of even attention cost: longest sequence first, each into the cheapest pack that has room."""

import heapq
from bisect import bisect_left, insort
from dataclasses import dataclass, field

import numpy as np

from bridgepack.data.packing.best_fit import best_fit_decreasing, longest_first
from bridgepack.geometry import IntArray

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
    needed = len(best_offsets) - 1
    order = longest_first(lengths, size, seed)
    descending = lengths[order].tolist()
    for closing in _CLOSING:
        packs = _Packs(size, cap, needed)
        num_spread = max(round(len(descending) * (1 - closing)), needed)
        packs.lay_cheapest_first(descending[:num_spread])
        packs.lay_fullest_first(descending[num_spread:])
        if len(packs.rooms) <= needed * (1 + _EXTRA_PACKS):
            return order, np.array(packs.chosen, dtype=np.int64)
    return best_order, np.repeat(np.arange(needed), np.diff(best_offsets))


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
        open_packs: dict[int, list[int]] = {}
        rooms: list[int] = []

        def put(pack: int) -> None:
            room = self.rooms[pack]
            if room and self.counts[pack] < self.cap:
                if room not in open_packs:
                    insort(rooms, room)
                open_packs.setdefault(room, []).append(pack)

        for pack in range(len(self.rooms)):
            put(pack)
        for length in descending:
            at = bisect_left(rooms, length)
            pack = open_packs[rooms[at]].pop() if at < len(rooms) else len(self.rooms)
            if at < len(rooms) and not open_packs[rooms[at]]:
                del open_packs[rooms.pop(at)]
            self._lay(length, pack)
            put(pack)

    def _lay(self, length: int, pack: int) -> None:
        if pack == len(self.rooms):
            self.rooms.append(self.size)
            self.counts.append(0)
        self.rooms[pack] -= length
        self.counts[pack] += 1
        self.chosen.append(pack)
