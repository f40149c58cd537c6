"""The table of segments: what each answer says, and what is left of it, against sets of tokens."""

from collections.abc import Sequence
from itertools import batched

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.answers.segments import NO_ANSWER, Kind, Segment, Segments

HEADER, TEXT, END = Kind


def _answer(row: int, message: int, header: int) -> list[Segment]:
    """Return a header, a text of two tokens and an end of one token."""
    edges = [(HEADER, header, header + 1), (TEXT, header + 1, header + 3), (END, header + 3, header + 4)]
    return [Segment(row, message, kind, start, stop) for kind, start, stop in edges]


def test_an_answer_is_its_text_with_its_end() -> None:
    table = Segments.of([*_answer(0, 1, 2), *_answer(0, 3, 9), *_answer(2, 1, 20)])

    assert [(item.message, item.start, item.stop) for item in table.answers_of(0)] == [(1, 3, 6), (3, 10, 13)]
    assert table.answers_of(1) == []
    assert [(item.message, item.start, item.stop) for item in table.answers_of(2)] == [(1, 21, 24)]


@pytest.mark.parametrize(
    ("messages", "spans"),
    [((1, 1), [(0, 4)]), ((1, 3), [(0, 2), (2, 4)]), ((NO_ANSWER, NO_ANSWER), [(0, 2), (2, 4)])],
    ids=["of one answer", "of two answers", "of nobody knows whom"],
)
def test_texts_that_touch(messages: Sequence[int], spans: Sequence[tuple[int, int]]) -> None:
    first, second = messages
    table = Segments.of([Segment(0, first, TEXT, 0, 2), Segment(0, second, TEXT, 2, 3), Segment(0, second, END, 3, 4)])

    assert [(item.start, item.stop) for item in table.answers_of(0)] == spans


@given(
    edges=st.lists(st.integers(0, 40), min_size=2, max_size=12, unique=True).map(sorted),
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6),
    kinds=st.lists(st.sampled_from(Kind), min_size=6, max_size=6),
)
def test_tokens_that_are_left_out(edges: list[int], spans: list[tuple[int, int]], kinds: list[Kind]) -> None:
    places = [pair for pair in batched(edges, 2) if len(pair) == 2]
    table = Segments.of(
        Segment(index // 2, index, kind, start, stop)
        for index, (kind, (start, stop)) in enumerate(zip(kinds, places, strict=False))
    )
    left_out = {token for start, stop in spans for token in range(start, stop)}

    left = table.without(spans).check()

    expected = [int(bit and token not in left_out) for token, bit in enumerate(table.mask(40).tolist())]
    assert left.mask(40).tolist() == expected
    for message, kind, start, stop in zip(left.message, left.kind, left.start, left.stop, strict=True):
        assert kind == kinds[message]
        assert places[message][0] <= start
        assert stop <= places[message][1]


def test_conversations_as_one_text_each() -> None:
    table = Segments.one_text_each(np.array([0, 3, 3, 5]))

    assert table.of_row(0) == [Segment(0, NO_ANSWER, TEXT, 0, 3)]
    assert table.of_row(1) == []
    assert table.of_row(2) == [Segment(2, NO_ANSWER, TEXT, 3, 5)]
