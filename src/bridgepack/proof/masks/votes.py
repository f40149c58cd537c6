"""Votes on which tokens of a text the assistant wrote, and what a row's tokens and mask have against them.

A vote says whether a character or token is trained, untrained, or cannot be judged. Independent derivations of a mask
become votes; a mask that contradicts a vote is a finding.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.proof.masks.records import Kind, RowFinding, RowVerdict
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


class Differences(NamedTuple):
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


def leave_tokens_at(places: Iterable[int], derivations: Iterable[Derivation], bounds: IntArray) -> None:
    """Reset, in place, the votes on tokens that begin before one of some characters and reach behind it."""
    spans = [bounds[(bounds[:, 0] < place) & (place < bounds[:, 1])].tolist() for place in places]
    for item in derivations:
        for start, stop in chain.from_iterable(spans):
            item.votes[start:stop] = NOT_JUDGED


def exclude_spans(derivation: Derivation, spans: Sequence[Span | None], reason: str = "") -> Derivation:
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
    return exclude_spans(derivation, [None if last is None else (0, last[0])], reason)


def token_bounds(offsets: Sequence[Span], *, closes_gaps: bool) -> IntArray:
    """Return (start, stop) of each token in characters; shape [num_tokens, 2], int64.

    With `closes_gaps`, text between two tokens belongs to the later one: the tokenizer keeps every character, but omits
    a token's leading space from its offsets.

    Example: [(0, 2), (3, 5)], closing gaps -> [[0, 2], [2, 5]].
    """
    bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    if closes_gaps:
        previous_end = np.maximum.accumulate(bounds[:, 1])
        bounds[1:, 0] = np.minimum(bounds[1:, 0], previous_end[:-1])
    return bounds


def token_votes(votes: VoteArray, bounds: IntArray) -> VoteArray:
    """Return the vote on each token; shape [num_tokens], int8.

    A token has the vote of its first character: it is trained if it begins inside an answer's region, from the end of
    its header to the end of its end marker. A token without characters, or behind the votes, is not judged. Bounds come
    from `token_bounds`.

    Example: votes [0, 0, 1, 1], bounds [[0, 2], [2, 4]] -> [0, 1]; bounds [[0, 1], [1, 3], [3, 4]] -> [0, 0, 1].
    """
    starts, stops = bounds[:, 0], bounds[:, 1]
    is_judged = (stops > starts) & (starts < len(votes))
    tokens = no_votes(len(bounds))
    tokens[is_judged] = votes[starts[is_judged]]
    return tokens


def straddling_tokens(votes: Iterable[VoteArray], bounds: IntArray) -> frozenset[int]:
    """Return the tokens whose first and last character have different votes: [[0, 1]], bounds [[0, 2]] -> {0}."""
    tokens = np.flatnonzero(bounds[:, 1] > bounds[:, 0])
    differ = np.zeros(len(tokens), dtype=np.bool_)
    for item in votes:
        padded_votes = np.concatenate((item, no_votes(max(int(bounds.max(initial=0)) - len(item), 0))))
        differ |= padded_votes[bounds[tokens, 0]] != padded_votes[bounds[tokens, 1] - 1]
    return frozenset(tokens[differ].tolist())


def tokens_within(span: Span, bounds: IntArray) -> IntArray:
    """Return the tokens whose characters all lie in a span: (2, 4), bounds [[0, 2], [2, 4]] -> [1]."""
    starts, stops = bounds[:, 0], bounds[:, 1]
    return np.flatnonzero((starts >= span[0]) & (stops <= span[1]) & (starts < stops))


def without_tokens(votes: VoteArray, input_ids: TokenArray, never_trained: Iterable[int]) -> VoteArray:
    """Return votes on tokens with votes against training some ids, in any position."""
    is_never = np.isin(input_ids, list(never_trained))
    new_votes: VoteArray = np.where(is_never, np.int8(NOT_TRAINED), votes)
    return new_votes


def differences(mask: MaskArray, votes: VoteArray) -> Differences:
    """Return the differences between a token-aligned mask and votes on tokens; both of shape [num_tokens]."""
    trained_tokens = np.flatnonzero((votes == NOT_TRAINED) & (mask != 0))
    untrained_tokens = np.flatnonzero((votes == TRAINED) & (mask == 0))
    has_any, has_both = (
        bool(len(trained_tokens) or len(untrained_tokens)),
        bool(len(trained_tokens) and len(untrained_tokens)),
    )
    is_shifted = has_any and _is_shifted(mask, votes, has_both=has_both)
    return Differences(is_shifted, tuple(trained_tokens.tolist()), tuple(untrained_tokens.tolist()))


def _is_shifted(mask: MaskArray, votes: VoteArray, *, has_both: bool) -> bool:
    """Return whether all judged tokens have the mask of their left neighbour, or all that of their right one.

    `has_both` says that the mask has extra and missing trained tokens, as after a shift; after a shift to the left, the
    missing ones can be white space that is not judged.
    """
    is_judged = votes != NOT_JUDGED
    is_right = bool((votes[:-1] == mask[1:])[is_judged[:-1]].all())
    is_left = bool((votes[1:] == mask[:-1])[is_judged[1:]].all())
    behind = np.flatnonzero((votes[:-1] == TRAINED) & ~is_judged[1:]) + 1
    return (has_both and (is_left or is_right)) or (is_left and len(behind) > 0 and not mask[behind].any())


#: Tokens to show around a difference, and maximum tokens of it to show.
_MARGIN, _MOST_SHOWN = 12, 40
#: Name of the mask's own text in a finding.
MASK = "mask"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedTurn:
    """The tokens of an assistant turn that should be trained, without tokens that are never trained."""

    message: int  #: from 1
    tokens: IntArray
    end: IntArray  #: tokens that end the turn


@dataclass(frozen=True, kw_only=True)
class TokenCase:
    """A row's tokens and mask, and the derivations' votes on them."""

    input_ids: TokenArray  #: shape [num_tokens], int32
    mask: MaskArray  #: shape [num_tokens], int8, token-aligned
    votes: Mapping[str, VoteArray]  #: derivation -> shape [num_tokens], int8
    decode: Callable[[Sequence[int]], str]  #: ids -> text
    advice: str  #: what to do if the mask is wrong
    turns: Sequence[TrainedTurn] = ()  #: assistant turns that should be trained
    #: token -> (its message, from 1; the message's role); None if unknown
    message_of: Callable[[int], tuple[int, str] | None] = lambda _: None
    #: tokens of thoughts that should not be trained, int64
    thoughts: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    straddling: frozenset[int] = frozenset()  #: tokens that begin in one region and end in another

    def findings(self) -> Iterator[RowFinding]:
        """Yield the mask's problems, one finding per kind."""
        if len(self.mask) != len(self.input_ids) or not np.isin(self.mask, (0, 1)).all():
            yield RowFinding(
                kind="mask-malformed",
                detail=f"{len(self.input_ids)} tokens but {len(self.mask)} mask entries; each entry must be 0 or 1",
                advice="Report it: bridgepack made this mask.",
            )
            return
        by_name = {name: differences(self.mask, votes) for name, votes in self.votes.items()}
        shift = next((item for item in by_name.values() if item.is_shifted and not self._only_straddles(item)), None)
        if shift is not None:
            places = sorted({*shift.trained, *shift.untrained})
            yield self._finding("mask-shifted", "the mask is shifted by one token", places)
            return
        yield from self._trained_elsewhere(by_name)
        yield from self._not_trained({token for item in by_name.values() for token in item.untrained})

    def _only_straddles(self, item: Differences) -> bool:
        """Return whether a difference that looks like a shift is of tokens that hold the end of a header."""
        return not item.untrained and self.straddling.issuperset(item.trained)

    def _trained_elsewhere(self, by_name: Mapping[str, Differences]) -> Iterator[RowFinding]:
        trained_tokens = {token for item in by_name.values() for token in item.trained}
        thought = sorted(trained_tokens.intersection(self.thoughts.tolist()))
        if thought:
            detail = f"{_tokens(thought)} of reasoning trained, although preprocessing.reasoning_loss excludes them"
            yield self._finding("reasoning-trained", detail, thought)
        places = sorted(trained_tokens.difference(thought))
        if places:
            place = self.message_of(places[0])
            place_text = "" if place is None else f"; the first is in the {place[1]} turn"
            detail = f"{_tokens(places)} trained that the assistant did not write{place_text}"
            yield self._finding("other-turn-trained", detail, places)

    def _not_trained(self, missing: set[int]) -> Iterator[RowFinding]:
        """Yield turns without trained tokens, turns with an untrained end, and other untrained tokens."""
        silent = [turn for turn in self.turns if len(turn.tokens) and not self.mask[turn.tokens].any()]
        endless = [turn for turn in self.turns if turn not in silent and (self.mask[turn.end] == 0).any()]
        if silent:
            places = sorted({int(token) for turn in silent for token in turn.tokens})
            missing -= set(places)
            yield self._finding("turn-not-trained", f"nothing of {_turns(silent)} trained", places, silent[0].message)
        if endless:
            places = sorted({int(token) for turn in endless for token in turn.end if not self.mask[token]})
            missing -= set(places)
            detail = f"what ends {_turns(endless)} not trained"
            yield self._finding("end-of-turn-not-trained", detail, places, endless[0].message)
        if missing:
            detail = f"{_tokens(missing)} not trained that the assistant writes"
            yield self._finding("answer-not-trained", detail, sorted(missing))

    def _finding(self, kind: Kind, detail: str, places: Sequence[int], message: int | None = None) -> RowFinding:
        """Return a finding in a message, by default the message of its first token."""
        indices = np.array(places)
        against = [
            name
            for name, votes in self.votes.items()
            if ((votes[indices] >= 0) & (votes[indices] != self.mask[indices])).any()
        ]
        place = self.message_of(places[0])
        first = max(places[0] - _MARGIN, 0)
        stop = min(places[-1], places[0] + _MOST_SHOWN) + _MARGIN + 1
        masks = {MASK: self.mask, **{name: self.votes[name] == TRAINED for name in against}}
        return RowFinding(
            kind=kind,
            detail=detail,
            advice=self.advice,
            derivations=tuple(against),
            message=place[0] if message is None and place is not None else message,
            token=places[0],
            num_tokens=len(places),
            texts={name: self._text(mask, first, min(stop, len(self.input_ids))) for name, mask in masks.items()},
        )

    def _text(self, mask: np.ndarray[tuple[int], np.dtype[np.generic]], first: int, stop: int) -> str:
        """Return tokens as text, with trained text between ⟦ and ⟧."""
        parts = []
        for is_trained, tokens in groupby(range(first, stop), key=lambda token: bool(mask[token])):
            text = self.decode([int(self.input_ids[token]) for token in tokens])
            parts.append(f"⟦{text}⟧" if is_trained else text)
        return "".join(parts)


def tokens_differ(
    names: Iterable[str], row_ids: TokenArray, text_ids: TokenArray, decode: Callable[[Sequence[int]], str]
) -> RowVerdict:
    """Return the verdict on a row whose `row_ids` differ from its text's, so that its mask cannot be judged."""
    num_shared = min(len(row_ids), len(text_ids))
    unequal = np.flatnonzero(row_ids[:num_shared] != text_ids[:num_shared])
    first = int(unequal[0]) if len(unequal) else num_shared
    around = slice(max(first - _MARGIN, 0), first + _MARGIN)
    finding = RowFinding(
        kind="tokens-differ",
        detail=f"{len(row_ids)} tokens; the text that transformers and the tokenizer give has {len(text_ids)}",
        advice="Report it: bridgepack made these tokens.",
        token=first,
        num_tokens=len(unequal) + abs(len(row_ids) - len(text_ids)),
        texts={"tokens": decode(row_ids[around].tolist()), "wanted": decode(text_ids[around].tolist())},
    )
    return RowVerdict.without_judgement(names, "the row's tokens do not match its text", finding)


def _tokens(places: Collection[int]) -> str:
    return "1 token" if len(places) == 1 else f"{len(places)} tokens"


def _turns(turns: Sequence[TrainedTurn]) -> str:
    return "an assistant turn is" if len(turns) == 1 else f"{len(turns)} assistant turns is"
