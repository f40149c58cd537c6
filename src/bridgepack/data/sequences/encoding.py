"""The interface of encoders: rows -> tokens and masks, as flat arrays for many rows or row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from bridgepack.data.answers.segments import Segments
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.errors import RowError
from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, TokenArray
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import UnreadCount


class Loss(NamedTuple):
    """Content of a row that its rendered text lacks or garbles."""

    kind: str  #: value of a `LostKind`
    detail: str


class Encoded(NamedTuple):
    """Ids and token-aligned mask of one example."""

    ids: list[int]  #: shape [stored_length]
    mask: list[int]  #: shape [stored_length], 1 where the token is trained as a target
    num_context: int = -1  #: leading tokens before the completion; -1 if not applicable
    losses: tuple[Loss, ...] = ()  #: content that the text lacks or garbles, one per kind
    #: positions of the messages that it trains, of a conversation that may become several sequences; empty otherwise
    turns: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()  #: positions of messages that were taken out on purpose, after that
    stop: str = ""  #: text behind its render: the beginning of the next turn, which ends the last answer


class Prepared(NamedTuple):
    """A row, ready to be encoded."""

    num_characters: int  #: approximate memory for encoding it, in characters
    value: Any
    losses: tuple[Loss, ...] = ()  #: content that the text lacks or garbles, one per kind
    unread: tuple[UnreadCount, ...] = ()  #: columns and fields of turns that nobody reads
    more: tuple[Any, ...] = ()  #: values of the row's further sequences
    #: positions of the messages that each sequence trains, of a conversation that may become several; empty otherwise
    turns: tuple[frozenset[int], ...] = ()
    removed: tuple[frozenset[int], ...] = ()  #: messages of each sequence that were taken out on purpose; empty if none
    stops: tuple[str, ...] = ()  #: text behind each sequence's render, see `Encoded`; empty if there is none

    @property
    def values(self) -> tuple[Any, ...]:
        """Values of all of the row's sequences."""
        return (self.value, *self.more)


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """Tokens and masks of several rows."""

    input_ids: TokenArray  #: shape [num_tokens], int32, stored
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned
    offsets: IntArray  #: shape [num_rows + 1], int64
    num_context: npt.NDArray[Any]  #: shape [num_rows], int32, see `Encoded`
    #: position of a row -> why it has no mask; its tokens are ignored
    errors: Mapping[int, RowError] = field(default_factory=dict)
    #: what the masks of conversations are made of; tokens that are never trained stand in it; empty for other rows
    segments: Segments = field(default_factory=lambda: Segments.of(()))


class Encoder(Protocol):
    """Turns rows into ids and token-aligned masks; each row's result is independent of the others."""

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row, ready to be encoded; raises RowError if it cannot become a sequence."""
        ...

    def encode(self, rows: Sequence[Any]) -> FlatBatch:
        """Return the tokens of sequences; takes the `values` of each prepared row."""
        ...


def encode_examples(encoder: Encoder, examples: Sequence[ReadRow]) -> list[Encoded | RowError]:
    """Return ids and mask of every sequence, or the row's error, in the order of the examples."""
    return [
        item
        for outcome in encode_rows(encoder, examples)
        for item in ([outcome] if isinstance(outcome, RowError) else outcome)
    ]


def encode_rows(encoder: Encoder, examples: Sequence[ReadRow]) -> list[list[Encoded] | RowError]:
    """Return the sequences of each example, one unless its conversation is split, or the row's error; in order.

    Raises:
        DataError: many rows take too much time or memory.
    """
    prepared_rows: list[Prepared | RowError] = []
    with TimeLimit() as limit:
        for row in examples:
            try:
                prepared_rows.append(limit(encoder.prepare, row))
            except RowError as error:
                prepared_rows.append(error)
    batch = encoder.encode([value for item in prepared_rows if isinstance(item, Prepared) for value in item.values])
    results: list[list[Encoded] | RowError] = []
    first = 0
    for item in prepared_rows:
        if isinstance(item, RowError):
            results.append(item)
            continue
        places = range(first, first + len(item.values))
        first = places.stop
        first_error = next((batch.errors[place] for place in places if place in batch.errors), None)
        results.append(first_error or [_sequence_at(batch, place, item, place - places.start) for place in places])
    return results


def _sequence_at(batch: FlatBatch, place: int, row: Prepared, index: int) -> Encoded:
    """Return a sequence of a batch, which is the row's of an index."""
    positions = slice(int(batch.offsets[place]), int(batch.offsets[place + 1]))
    return Encoded(
        ids=batch.input_ids[positions].tolist(),
        mask=batch.loss_mask[positions].tolist(),
        num_context=int(batch.num_context[place]),
        losses=row.losses,
        turns=row.turns[index] if row.turns else frozenset(),
        removed=row.removed[index] if row.removed else frozenset(),
        stop=row.stops[index] if row.stops else "",
    )


def mask_out(mask: MaskArray, input_ids: TokenArray, never_trained_ids: Sequence[int]) -> None:
    """Set a mask, shape [num_tokens], to 0 at tokens that Megatron-Bridge never trains, in place."""
    for token in never_trained_ids:
        mask[input_ids == token] = 0
