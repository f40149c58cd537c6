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
    #: message -> where its texts and ends are in the conversation; those of `NO_ANSWER` are of nobody knows whom
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
        for start, stop in self.places.get(NO_ANSWER, ()):
            owners = (message for message, block in zip(messages, blocks, strict=False) if block[0] <= start < block[1])
            places.setdefault(next(owners), []).append((start, stop))
        places.pop(NO_ANSWER, None)
        return replace(self, places={message: sorted(spans) for message, spans in places.items()})

    def span(self, message: int) -> Span | None:
        """Return an answer from its first trained token to its last; None if it is unknown or has none."""
        trained_tokens = [start + np.flatnonzero(self.mask[start:stop]) for start, stop in self.places.get(message, ())]
        tokens = np.concatenate(trained_tokens) if trained_tokens else np.empty(0)
        return (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else None

    def num_trained(self, message: int, served: Span | None, *, before: int | None = None) -> int:
        """Return how many trained tokens an answer has, of those before a token.

        Tokens of nobody knows whom count for the answer if they lie in `served`, the tokens of what the model writes.
        """
        spans = list(self.places.get(message, ()))
        if served is not None:
            first, after = served
            spans += [(max(start, first), min(stop, after)) for start, stop in self.places.get(NO_ANSWER, ())]
        mask = self.mask[:before]
        return sum(int(np.count_nonzero(mask[start:stop])) for start, stop in spans if start < stop)
