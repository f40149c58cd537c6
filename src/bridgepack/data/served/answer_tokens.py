"""The tokens of each answer of a conversation, as the segments that its mask is made of tell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bridgepack.data.answers.segments import NO_ANSWER, Kind, Segment
from bridgepack.records import MaskArray

#: (start, stop) in tokens.
Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTokens:
    """A conversation's mask, and whose its tokens are."""

    mask: MaskArray  #: token-aligned, as it is in the packs
    #: message -> where its texts and ends are in the conversation; of `NO_ANSWER` where that is unknown
    places: Mapping[int, Sequence[Span]]

    @classmethod
    def of(cls, segments: Iterable[Segment], mask: MaskArray, first: int) -> Self:
        """Return those of a conversation that begins at a token of the batch that the segments are of."""
        places = defaultdict[int, list[Span]](list)
        for item in segments:
            if item.kind != Kind.HEADER:
                places[item.message].append((item.start - first, item.stop - first))
        return cls(mask=mask, places=dict(places))

    def with_blocks(self, messages: Sequence[int], blocks: Sequence[Span]) -> Self:
        """Return them with the message of each generation block; tokens of a block that is no answer are left out."""
        places = {message: list(spans) for message, spans in self.places.items() if message != NO_ANSWER}
        for span in self.places.get(NO_ANSWER, ()):
            message = messages[_block_of(span, blocks)]
            if message != NO_ANSWER:
                places.setdefault(message, []).append(span)
        return replace(self, places={message: sorted(spans) for message, spans in places.items()})

    def span(self, message: int) -> Span | None:
        """Return an answer from its first trained token to its last; None if it is unknown or has none."""
        trained_tokens = [start + np.flatnonzero(self.mask[start:stop]) for start, stop in self.places.get(message, ())]
        tokens = np.concatenate(trained_tokens) if trained_tokens else np.empty(0)
        return (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else None

    def num_trained(self, message: int, served_span: Span | None, *, before: int | None = None) -> int:
        """Return how many trained tokens an answer has, of those before a token.

        Tokens whose answer is unknown count if they lie in `served_span`, the tokens that the model writes for it.
        """
        spans = list(self.places.get(message, ()))
        if served_span is not None:
            first, after = served_span
            spans += [(max(start, first), min(stop, after)) for start, stop in self.places.get(NO_ANSWER, ())]
        mask = self.mask[:before]
        return sum(int(np.count_nonzero(mask[start:stop])) for start, stop in spans if start < stop)


def _block_of(span: Span, blocks: Sequence[Span]) -> int:
    """Return the position of the block that a span is of: it begins in it, or in the end right behind it."""
    candidates = [index for index, (start, stop) in enumerate(blocks) if start <= span[0] and start < stop]
    return next((index for index in candidates if span[0] < blocks[index][1]), candidates[-1])
