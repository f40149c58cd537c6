"""Scanning many conversations with arrays finds what scanning them one by one finds."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers, scan_turns
from bridgepack.data.tokenizers.engines import joined

#: 1 begins a turn, 2 and 3 say whose; 4 ends one, 5 may follow it.
PLAIN = TurnMarkers(starts={ASSISTANT: (1, 2), "user": (1, 3), "tool": (1, 2, 6)}, ends=((4, 5), (4,), (7,)))
OVERLAPPING = TurnMarkers(starts={ASSISTANT: (1, 2, 1), "user": (3, 3)}, ends=((4, 4), (4,)))
TEXTS = st.lists(st.lists(st.integers(1, 8), max_size=24), min_size=1, max_size=5)


def _scan_one(ids: list[int], num_turns: int, markers: TurnMarkers, includes_content: bool) -> list[int] | None:
    """Scan one conversation as Megatron-Bridge does, with loops."""
    starts = [
        (place, -len(marker), role)
        for role, marker in markers.starts.items()
        for place in _places(ids, marker, step=len(marker))
    ]
    longest = {place: (role, place - size) for place, size, role in sorted(starts, key=lambda item: item[:2])[::-1]}
    bounds = [*sorted(longest), len(ids)]
    if [role for role, _ in longest.values()].count(ASSISTANT) != num_turns:
        return None
    mask, has_turn = [0] * len(ids), False
    for place, limit in pairwise(bounds):
        role, content = longest[place]
        ends = [
            (end, priority, end + len(marker))
            for priority, marker in enumerate(markers.ends)
            for end in _places(ids[:limit], marker)
            if end >= content
        ]
        if role == ASSISTANT and ends:
            if len({end for end, _, _ in ends}) > 1:
                return None
            end, _, after = min(ends)
            begin = content if includes_content else end
            mask[begin:after] = [1] * (after - begin)
            has_turn = True
    return mask if has_turn else None


def _places(ids: list[int], marker: Sequence[int], step: int = 1) -> list[int]:
    found: list[int] = []
    for place in range(len(ids) - len(marker) + 1):
        if ids[place : place + len(marker)] == list(marker) and (not found or place >= found[-1] + step):
            found.append(place)
    return found


@settings(max_examples=300)
@given(
    texts=TEXTS,
    counts=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    markers=st.sampled_from((PLAIN, OVERLAPPING)),
    includes_content=st.booleans(),
)
def test_same_as_one_by_one(
    texts: list[list[int]], counts: list[int], markers: TurnMarkers, includes_content: bool
) -> None:
    flat = joined(texts)

    found = scan_turns(flat, markers, np.array(counts[: len(texts)]), includes_content=includes_content)

    for index, ids in enumerate(texts):
        expected = _scan_one(ids, counts[index], markers, includes_content)
        assert found.is_found[index] == (expected is not None)
        mask = found.mask[flat.offsets[index] : flat.offsets[index + 1]].tolist()
        assert mask == (expected or [0] * len(ids))


def test_only_answer_at_the_end() -> None:
    only, two, followed = [1, 3, 8, 4, 1, 2, 8, 4, 5], [1, 2, 8, 4, 1, 2, 8, 4], [1, 2, 8, 4, 1, 3, 8, 4]

    found = scan_turns(joined([only, two, followed]), PLAIN, np.array([1, 2, 1]))

    assert found.is_found.tolist() == [True, True, True]
    assert found.ends_with_only_answer.tolist() == [True, False, False]
    assert found.mask.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]
