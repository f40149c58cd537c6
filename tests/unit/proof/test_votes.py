"""Votes on characters and tokens, and where a mask is not what they say; every case can be checked by hand."""

import numpy as np
import pytest

from bridgepack.proof.masks.votes import (
    Derivation,
    Differences,
    Span,
    differences,
    leave_blanks,
    only_last_turn,
    silent,
    token_bounds,
    token_votes,
    tokens_within,
    without_tokens,
)


def _votes(text: str) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return votes as they are drawn: `1`, `0`, and `.` for none."""
    return np.array([{"1": 1, "0": 0, ".": -1}[character] for character in text], dtype=np.int8)


@pytest.mark.parametrize(
    ("votes", "offsets", "expected"),
    [
        ("0011", [(0, 2), (2, 4)], "01"),
        ("0011", [(0, 1), (1, 3), (3, 4)], "0.1"),
        ("00.1", [(0, 2), (2, 3), (3, 4)], "0.1"),
        ("0111", [(0, 1), (1, 2), (1, 2), (2, 4)], "0111"),
        ("01", [(0, 1), (1, 1), (1, 2)], "0.1"),
        ("01", [], ""),
    ],
)
def test_a_token_has_the_vote_that_all_its_characters_have(votes: str, offsets: list[Span], expected: str) -> None:
    bounds = token_bounds(offsets, closes_gaps=False)

    assert token_votes(_votes(votes), bounds).tolist() == _votes(expected).tolist()


def test_a_space_that_offsets_leave_out_is_of_the_later_token() -> None:
    offsets = [(0, 2), (3, 5)]

    assert token_bounds(offsets, closes_gaps=True).tolist() == [[0, 2], [2, 5]]
    assert token_bounds(offsets, closes_gaps=False).tolist() == [[0, 2], [3, 5]]


def test_tokens_within_a_span_lie_in_it_whole() -> None:
    bounds = token_bounds([(0, 2), (2, 4), (4, 4), (3, 5)], closes_gaps=False)

    assert tokens_within((2, 4), bounds).tolist() == [1]


def test_white_space_at_the_end_of_a_turn_is_not_judged() -> None:
    votes = _votes("0111100")
    leave_blanks(votes, "uabc \n\n", [(1, 5), None])

    assert votes.tolist() == _votes("0111...").tolist()


def test_only_the_last_turn() -> None:
    derivation = Derivation(votes=_votes("0110.11"), turns=((1, 3), (5, 7)))

    assert only_last_turn(derivation).votes.tolist() == _votes("0000.11").tolist()


def test_only_the_last_turn_where_it_is_not_known() -> None:
    judged = only_last_turn(Derivation(votes=_votes("0110"), turns=(None,)))

    assert judged.votes.tolist() == _votes("0..0").tolist()
    assert judged.reasons == ("nothing tells where the last assistant turn begins",)
    nothing = silent("abc", "why")
    assert only_last_turn(nothing) is nothing
    assert nothing.is_silent


def test_tokens_that_are_never_trained() -> None:
    votes = without_tokens(_votes("01.1"), np.array([7, 7, 7, 8], dtype=np.int32), {7})

    assert votes.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("mask", "votes", "expected"),
    [
        ("0110", "0110", Differences()),
        ("0110", "....", Differences()),
        ("1110", "0110", Differences(trained=(0,))),
        ("0100", "0.10", Differences(untrained=(2,))),
        ("0011", "0110", Differences(is_shifted=True, trained=(3,), untrained=(1,))),
        ("1100", "011.", Differences(is_shifted=True, trained=(0,), untrained=(2,))),
        ("110", "01.", Differences(is_shifted=True, trained=(0,))),
        ("111", "01.", Differences(trained=(0,))),
        ("1010", "0110", Differences(trained=(0,), untrained=(1,))),
    ],
)
def test_differences(mask: str, votes: str, expected: Differences) -> None:
    assert differences(_votes(mask), _votes(votes)) == expected
