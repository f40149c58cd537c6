"""Votes on which tokens of a text the assistant wrote, and how a loss mask differs from them.

A vote says of each character, then of each token, that it is trained, that it is not, or that it cannot be judged.
Derivations of a mask, made independently of one another, become votes; a mask that a vote contradicts is a finding.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, TokenArray

TRAINED, NOT_TRAINED, NOT_JUDGED = 1, 0, -1

#: One vote per character or per token; int8: TRAINED, NOT_TRAINED or NOT_JUDGED.
VoteArray = npt.NDArray[np.int8]
#: (first, one past the last) characters or tokens.
Span = tuple[int, int]
#: Characters behind a turn among which white space is looked for.
_MOST_BLANKS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """What one derivation says of a rendered conversation."""

    votes: VoteArray  #: shape [num_characters], int8
    #: (first, one past the last) characters that each assistant turn writes, its end included, in order; None where
    #: that is not known
    turns: tuple[Span | None, ...] = ()
    reasons: tuple[str, ...] = ()  #: why some of it, or all, cannot be judged

    @property
    def is_silent(self) -> bool:
        """It judges nothing."""
        return not bool((self.votes != NOT_JUDGED).any())


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Where a mask is not what a derivation says, as token indices, ascending."""

    is_shifted: bool = False  #: the mask moved by one token is what the derivation says
    trained: tuple[int, ...] = ()  #: the mask trains these, the derivation does not
    untrained: tuple[int, ...] = ()  #: the derivation trains these, the mask does not


def no_votes(num_characters: int) -> VoteArray:
    """Return votes that judge nothing; shape [num_characters], int8."""
    return np.full(num_characters, NOT_JUDGED, dtype=np.int8)


def silent(text: str, reason: str) -> Derivation:
    """Return a derivation that judges nothing of a text, and why."""
    return Derivation(votes=no_votes(len(text)), reasons=(reason,))


def leave_blanks(votes: VoteArray, text: str, turns: Iterable[Span | None]) -> None:
    """Take back the votes on white space where a turn ends, within it and behind it: templates write it between turns.

    Megatron-Bridge trains the line end after `<|im_end|>`, and none after `<end_of_turn>`. Neither is wrong.
    """
    for start, stop in (turn for turn in turns if turn is not None):
        behind = text[stop : stop + _MOST_BLANKS]
        first, last = start + len(text[start:stop].rstrip()), stop + len(behind) - len(behind.lstrip())
        votes[first:last] = NOT_JUDGED


def untrained(derivation: Derivation, spans: Sequence[Span | None], reason: str = "") -> Derivation:
    """Return a derivation whose votes are against training some spans of characters.

    Where one of them is not known, which None says, what is not trained in any mode is all that is judged; `reason`
    says why.
    """
    votes, reasons = derivation.votes.copy(), derivation.reasons
    if None in spans:
        votes[votes == TRAINED] = NOT_JUDGED
        reasons = (*reasons, *([reason] if reason else []))
    for first, stop in (span for span in spans if span is not None):
        within = votes[first:stop]
        within[within == TRAINED] = NOT_TRAINED
    return replace(derivation, votes=votes, reasons=reasons)


def only_last_turn(derivation: Derivation) -> Derivation:
    """Return a derivation whose votes for the last turn alone are for training."""
    if not (derivation.votes == TRAINED).any():
        return derivation
    last = derivation.turns[-1] if derivation.turns else None
    reason = "nothing tells where the last assistant turn begins"
    return untrained(derivation, [None if last is None else (0, last[0])], reason)


def token_bounds(offsets: Sequence[Span], *, closes_gaps: bool) -> IntArray:
    """Return the first and one past the last character of each token; shape [num_tokens, 2], int64.

    Args:
        offsets: as the tokenizer gives them.
        closes_gaps: what lies between two tokens is of the later: the tokenizer keeps every character, and leaves the
            space that a token begins with out of the token's offsets.

    Example: [(0, 2), (3, 5)], closing gaps -> [[0, 2], [2, 5]].
    """
    bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    if closes_gaps:
        reached = np.maximum.accumulate(bounds[:, 1])
        bounds[1:, 0] = np.minimum(bounds[1:, 0], reached[:-1])
    return bounds


def token_votes(votes: VoteArray, bounds: IntArray) -> VoteArray:
    """Return the vote on each token; shape [num_tokens], int8.

    A token is judged where all of its characters have one vote. One without characters is not judged.

    Args:
        votes: on characters.
        bounds: of each token, as `token_bounds` gives them.

    Example: votes [0, 0, 1, 1], bounds [[0, 2], [2, 4]] -> [0, 1]; bounds [[0, 1], [1, 3], [3, 4]] -> [0, -1, 1].
    """
    starts, stops = bounds[:, 0], bounds[:, 1]
    widths = stops - starts
    found = no_votes(len(bounds))
    for vote in (NOT_TRAINED, TRAINED):
        count = np.concatenate(([0], np.cumsum(votes == vote)))
        found[(count[stops] - count[starts] == widths) & (widths > 0)] = vote
    return found


def tokens_within(span: Span, bounds: IntArray) -> IntArray:
    """Return the tokens whose characters all lie in a span: (2, 4), bounds [[0, 2], [2, 4]] -> [1]."""
    starts, stops = bounds[:, 0], bounds[:, 1]
    return np.flatnonzero((starts >= span[0]) & (stops <= span[1]) & (starts < stops))


def without_tokens(votes: VoteArray, input_ids: TokenArray, never_trained: Iterable[int]) -> VoteArray:
    """Return votes on tokens that are against training some ids, wherever they stand."""
    is_never = np.isin(input_ids, list(never_trained))
    found: VoteArray = np.where(is_never, np.int8(NOT_TRAINED), votes)
    return found


def differences(mask: MaskArray, votes: VoteArray) -> Differences:
    """Return where a token-aligned mask is not what votes on its tokens say; both of shape [num_tokens]."""
    trained = np.flatnonzero((votes == NOT_TRAINED) & (mask != 0))
    untrained = np.flatnonzero((votes == TRAINED) & (mask == 0))
    return Differences(
        is_shifted=bool(len(trained) or len(untrained))
        and _is_shifted(mask, votes, has_both=bool(len(trained) and len(untrained))),
        trained=tuple(trained.tolist()),
        untrained=tuple(untrained.tolist()),
    )


def _is_shifted(mask: MaskArray, votes: VoteArray, *, has_both: bool) -> bool:
    """Say whether every judged token has the mask of its left neighbour, or every one that of its right.

    Args:
        mask: shape [num_tokens], token-aligned.
        votes: on the tokens, of the same shape.
        has_both: the mask trains too much in one place and too little in another, as a shift does; where what it would
            train too little is white space that is not judged, a shift to the left leaves that untrained.
    """
    judged = votes != NOT_JUDGED
    is_right = bool((votes[:-1] == mask[1:])[judged[:-1]].all())
    is_left = bool((votes[1:] == mask[:-1])[judged[1:]].all())
    behind = np.flatnonzero((votes[:-1] == TRAINED) & ~judged[1:]) + 1
    return (has_both and (is_left or is_right)) or (is_left and len(behind) > 0 and not mask[behind].any())


def common_prefix(first: str, second: str) -> int:
    """Return how many leading characters two texts share: "abc", "abd" -> 2."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def without_open_tag(text: str) -> str:
    """Return a text without a tag that it ends in the middle of: "<|bot|><th" -> "<|bot|>"."""
    place = text.rfind("<")
    return text if place < 0 or ">" in text[place:] else text[:place]
