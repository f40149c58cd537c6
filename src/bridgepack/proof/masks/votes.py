"""Votes on which tokens of a text the assistant wrote, and their comparison with a loss mask.

A vote says whether a character or token is trained, untrained, or cannot be judged. Independent derivations of a mask
become votes; a mask that contradicts a vote is a finding.
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
#: (start, stop) in characters or tokens.
Span = tuple[int, int]
#: Characters after a turn in which to search for white space.
_MOST_BLANKS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """One derivation's votes on a rendered conversation."""

    votes: VoteArray  #: shape [num_characters], int8
    #: (start, stop) in characters of each assistant turn's own text, its end included, in order; None if
    #: unknown
    turns: tuple[Span | None, ...] = ()
    reasons: tuple[str, ...] = ()  #: why parts or all of it cannot be judged

    @property
    def is_silent(self) -> bool:
        """Whether it judges nothing."""
        return not bool((self.votes != NOT_JUDGED).any())


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """Differences between a mask and a derivation, as ascending token indices."""

    is_shifted: bool = False  #: the mask equals the derivation when shifted by one token
    trained: tuple[int, ...] = ()  #: the mask trains these, the derivation does not
    untrained: tuple[int, ...] = ()  #: the derivation trains these, the mask does not


def no_votes(num_characters: int) -> VoteArray:
    """Return votes that judge nothing; shape [num_characters], int8."""
    return np.full(num_characters, NOT_JUDGED, dtype=np.int8)


def silent(text: str, reason: str) -> Derivation:
    """Return a derivation that judges nothing, with the reason."""
    return Derivation(votes=no_votes(len(text)), reasons=(reason,))


def leave_blanks(votes: VoteArray, text: str, turns: Iterable[Span | None]) -> None:
    """Reset, in place, the votes on white space at turns' ends, inside and after: templates write it between turns.

    Megatron-Bridge trains the line end after `<|im_end|>` but not after `<end_of_turn>`. Both are valid.
    """
    for start, stop in (turn for turn in turns if turn is not None):
        behind = text[stop : stop + _MOST_BLANKS]
        first, last = start + len(text[start:stop].rstrip()), stop + len(behind) - len(behind.lstrip())
        votes[first:last] = NOT_JUDGED


def untrained(derivation: Derivation, spans: Sequence[Span | None], reason: str = "") -> Derivation:
    """Return the derivation with votes against training some character spans.

    If a span is unknown (None), only text that no mode trains is judged; `reason` says why.
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
    """Return the derivation with votes for training only in the last turn."""
    if not (derivation.votes == TRAINED).any():
        return derivation
    last = derivation.turns[-1] if derivation.turns else None
    reason = "nothing tells where the last assistant turn begins"
    return untrained(derivation, [None if last is None else (0, last[0])], reason)


def token_bounds(offsets: Sequence[Span], *, closes_gaps: bool) -> IntArray:
    """Return (start, stop) of each token in characters; shape [num_tokens, 2], int64.

    With `closes_gaps`, text between two tokens belongs to the later one: the tokenizer keeps every character, but omits
    a token's leading space from its offsets.

    Example: [(0, 2), (3, 5)], closing gaps -> [[0, 2], [2, 5]].
    """
    bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    if closes_gaps:
        reached = np.maximum.accumulate(bounds[:, 1])
        bounds[1:, 0] = np.minimum(bounds[1:, 0], reached[:-1])
    return bounds


def token_votes(votes: VoteArray, bounds: IntArray) -> VoteArray:
    """Return the vote on each token; shape [num_tokens], int8.

    A token is judged if all its characters have the same vote. A token without characters is not judged. Bounds come
    from `token_bounds`.

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
    """Return votes on tokens with votes against training some ids, in any position."""
    is_never = np.isin(input_ids, list(never_trained))
    found: VoteArray = np.where(is_never, np.int8(NOT_TRAINED), votes)
    return found


def differences(mask: MaskArray, votes: VoteArray) -> Differences:
    """Return the differences between a token-aligned mask and votes on tokens; both of shape [num_tokens]."""
    trained = np.flatnonzero((votes == NOT_TRAINED) & (mask != 0))
    untrained = np.flatnonzero((votes == TRAINED) & (mask == 0))
    return Differences(
        is_shifted=bool(len(trained) or len(untrained))
        and _is_shifted(mask, votes, has_both=bool(len(trained) and len(untrained))),
        trained=tuple(trained.tolist()),
        untrained=tuple(untrained.tolist()),
    )


def _is_shifted(mask: MaskArray, votes: VoteArray, *, has_both: bool) -> bool:
    """Return whether all judged tokens have the mask of their left neighbour, or all that of their right one.

    `has_both` says that the mask has extra and missing trained tokens, as after a shift; after a shift to the left, the
    missing ones can be white space that is not judged.
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
    """Return a text without an incomplete tag at its end: "<|bot|><th" -> "<|bot|>"."""
    place = text.rfind("<")
    return text if place < 0 or ">" in text[place:] else text[:place]
