"""Scanning many conversations with arrays finds what scanning them one by one finds.

One by one is as Megatron-Bridge scans, but that it stops at tokens that open a turn, and keeps a last
answer without an end.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.answers.scan import scan_turns
from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.engines import join_ids
from bridgepack.records import ASSISTANT
from tests.support.examples import examples

#: 1 begins a turn, 2 and 3 say whose; 4 ends one, 5 may follow it.
PLAIN = TurnMarkers(starts={ASSISTANT: (1, 2), "user": (1, 3), "tool": (1, 2, 6)}, ends=((4, 5), (4,), (7,)))
OVERLAPPING = TurnMarkers(starts={ASSISTANT: (1, 2, 1), "user": (3, 3)}, ends=((4, 4), (4,)))
#: 1 opens a turn, whatever follows it.
OPENING = TurnMarkers(starts={ASSISTANT: (1, 2), "user": (1, 3)}, ends=((4,), (7,)), openers=frozenset({1}))
#: 3 begins the user's turn and ends the assistant's.
SHARED = TurnMarkers(starts={ASSISTANT: (2,)}, ends=((3,), (7,)), openers=frozenset({2, 3, 7}))
TEXTS = st.lists(st.lists(st.integers(1, 8), max_size=24), min_size=1, max_size=5)


def _scan_one(ids: list[int], num_turns: int, markers: TurnMarkers) -> tuple[list[int], bool] | None:
    """Scan one conversation with loops; return the mask, and whether the text ends with an answer without an end."""
    starts = [
        (place, -len(marker), role)
        for role, marker in [*markers.starts.items(), *(("", (token,)) for token in markers.openers)]
        for place in _places(ids, marker, step=len(marker))
    ]
    longest = {place: (role, place - size) for place, size, role in sorted(starts, key=lambda item: item[:2])[::-1]}
    bounds = [*sorted(longest), len(ids)]
    if not num_turns or [role for role, _ in longest.values()].count(ASSISTANT) != num_turns:
        return None
    mask, is_open = [0] * len(ids), False
    for place, limit in pairwise(bounds):
        role, content = longest[place]
        ends = [
            (end, priority, end + len(marker))
            for priority, marker in enumerate(markers.ends)
            for end in _places(ids[:limit], marker)
            if end >= content
        ]
        if not ends and limit < len(ids):
            at_limit = [marker for marker in markers.ends if ids[limit : limit + len(marker)] == list(marker)]
            ends = [(limit, 0, limit + len(marker)) for marker in at_limit[:1]]
        if role != ASSISTANT:
            continue
        if len({end for end, _, _ in ends}) > 1 or (not ends and limit < len(ids)):
            return None
        _, _, after = min(ends, default=(limit, 0, limit))
        is_open = is_open or not ends
        mask[content:after] = [1] * (after - content)
    return mask, is_open


def _places(ids: list[int], marker: Sequence[int], step: int = 1) -> list[int]:
    found: list[int] = []
    for place in range(len(ids) - len(marker) + 1):
        if ids[place : place + len(marker)] == list(marker) and (not found or place >= found[-1] + step):
            found.append(place)
    return found


@examples(3)
@given(
    texts=TEXTS,
    counts=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    markers=st.sampled_from((PLAIN, OVERLAPPING, OPENING, SHARED)),
)
def test_same_as_one_by_one(texts: list[list[int]], counts: list[int], markers: TurnMarkers) -> None:
    flat = join_ids(texts)

    found = scan_turns(flat, markers, np.array(counts[: len(texts)]))

    trained = np.zeros(len(flat.input_ids), dtype=np.int8)
    for start, stop in zip(found.content.tolist(), found.stop.tolist(), strict=True):
        trained[start:stop] = 1
    for index, ids in enumerate(texts):
        expected = _scan_one(ids, counts[index], markers)
        assert found.is_found[index] == (expected is not None)
        mask = trained[flat.offsets[index] : flat.offsets[index + 1]].tolist()
        assert mask == (expected[0] if expected else [0] * len(ids))
        assert not expected or found.is_open[index] == expected[1]
