"""Scanning many conversations with arrays finds what scanning them one by one finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.sequences.scan import can_scan, find_all, scan_turns
from bridgepack.data.sequences.spans import mask_from_scan
from bridgepack.data.tokenizers.engines import joined

#: 1 begins a turn, 2 and 3 say whose; 4 ends one, 5 may follow it.
MARKERS = TurnMarkers(starts={ASSISTANT: (1, 2), "user": (1, 3), "tool": (1, 2, 6)}, ends=((4, 5), (4,), (7,)))
TEXTS = st.lists(st.lists(st.integers(1, 8), max_size=24), min_size=1, max_size=5)
ROLES = st.lists(st.sampled_from((ASSISTANT, "user", "tool")), max_size=3)


@settings(max_examples=300)
@given(texts=TEXTS, roles=st.lists(ROLES, min_size=5, max_size=5))
def test_same_as_one_by_one(texts: list[list[int]], roles: list[list[str]]) -> None:
    flat = joined(texts)
    counts = np.array([turns.count(ASSISTANT) for turns in roles[: len(texts)]])

    found = scan_turns(flat, MARKERS, counts)

    for index, ids in enumerate(texts):
        expected = mask_from_scan(ids, roles[index], MARKERS)
        assert found.is_found[index] == (expected is not None)
        mask = found.mask[flat.offsets[index] : flat.offsets[index + 1]].tolist()
        assert mask == (expected or [0] * len(ids))


def test_only_answer_at_the_end() -> None:
    only, two, followed = [1, 3, 8, 4, 1, 2, 8, 4, 5], [1, 2, 8, 4, 1, 2, 8, 4], [1, 2, 8, 4, 1, 3, 8, 4]

    found = scan_turns(joined([only, two, followed]), MARKERS, np.array([1, 2, 1]))

    assert found.is_found.tolist() == [True, True, True]
    assert found.ends_with_only_answer.tolist() == [True, False, False]
    assert found.first_content.tolist() == [6, 2, 2]
    assert found.mask.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(("pattern", "places"), [([1, 2], [0, 2]), ([2, 1, 2], [1]), ([3], []), ([], [])])
def test_find_all(pattern: list[int], places: list[int]) -> None:
    assert find_all(np.array([1, 2, 1, 2], dtype=np.int32), pattern).tolist() == places


def test_markers_that_overlap_with_themselves_are_not_scanned() -> None:
    assert can_scan(MARKERS)
    assert not can_scan(TurnMarkers(starts={ASSISTANT: (1, 2, 1)}, ends=((4,),)))
