"""Compares a row's tokens and mask with votes on its tokens, and describes the differences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.proof.masks.records import Kind, RowFinding, RowVerdict
from bridgepack.proof.masks.votes import TRAINED, Differences, VoteArray, differences
from bridgepack.records import MaskArray, TokenArray

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

    def findings(self) -> Iterator[RowFinding]:
        """Yield the mask's problems, one finding per kind."""
        if len(self.mask) != len(self.input_ids) or not np.isin(self.mask, (0, 1)).all():
            yield RowFinding(
                kind="mask-malformed",
                detail=f"{len(self.input_ids)} tokens but {len(self.mask)} mask entries; each entry must be 0 or 1",
                advice="Report it: bridgepack made this mask.",
            )
            return
        found = {name: differences(self.mask, votes) for name, votes in self.votes.items()}
        shifted = next((item for item in found.values() if item.is_shifted), None)
        if shifted is not None:
            places = sorted({*shifted.trained, *shifted.untrained})
            yield self._finding("mask-shifted", "the mask is shifted by one token", places)
            return
        yield from self._trained_elsewhere(found)
        yield from self._not_trained({token for item in found.values() for token in item.untrained})

    def _trained_elsewhere(self, found: Mapping[str, Differences]) -> Iterator[RowFinding]:
        trained = {token for item in found.values() for token in item.trained}
        thought = sorted(trained.intersection(self.thoughts.tolist()))
        if thought:
            detail = f"{_tokens(thought)} of reasoning trained, although preprocessing.reasoning_loss excludes them"
            yield self._finding("reasoning-trained", detail, thought)
        places = sorted(trained.difference(thought))
        if places:
            place = self.message_of(places[0])
            whose = "" if place is None else f"; the first is in the {place[1]} turn"
            detail = f"{_tokens(places)} trained that the assistant did not write{whose}"
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
        here = np.array(places)
        against = [
            name for name, votes in self.votes.items() if ((votes[here] >= 0) & (votes[here] != self.mask[here])).any()
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
    names: Iterable[str], made: TokenArray, wanted: TokenArray, decode: Callable[[Sequence[int]], str]
) -> RowVerdict:
    """Return the verdict on a row whose tokens (`made`) differ from its text's, so that its mask cannot be judged."""
    most = min(len(made), len(wanted))
    unequal = np.flatnonzero(made[:most] != wanted[:most])
    first = int(unequal[0]) if len(unequal) else most
    around = slice(max(first - _MARGIN, 0), first + _MARGIN)
    finding = RowFinding(
        kind="tokens-differ",
        detail=f"{len(made)} tokens; the text that transformers and the tokenizer give has {len(wanted)}",
        advice="Report it: bridgepack made these tokens.",
        token=first,
        num_tokens=len(unequal) + abs(len(made) - len(wanted)),
        texts={"tokens": decode(made[around].tolist()), "wanted": decode(wanted[around].tolist())},
    )
    return RowVerdict.unjudged(names, "the row's tokens do not match its text", finding)


def _tokens(places: Collection[int]) -> str:
    return "1 token" if len(places) == 1 else f"{len(places)} tokens"


def _turns(turns: Sequence[TrainedTurn]) -> str:
    return "an assistant turn is" if len(turns) == 1 else f"{len(turns)} assistant turns is"
