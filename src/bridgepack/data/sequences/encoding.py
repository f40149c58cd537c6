"""The interface of encoders: rows -> tokens and masks, as flat arrays for many rows or row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from bridgepack.errors import RowError
from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, TokenArray
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


class Prepared(NamedTuple):
    """A row, ready to be encoded."""

    num_characters: int  #: approximate memory for encoding it, in characters
    value: Any
    losses: tuple[Loss, ...] = ()  #: content that the text lacks or garbles, one per kind
    unread: tuple[UnreadCount, ...] = ()  #: columns and fields of turns that nobody reads


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """Tokens and masks of several rows."""

    input_ids: TokenArray  #: shape [num_tokens], int32, stored
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned
    offsets: IntArray  #: shape [num_rows + 1], int64
    num_context: npt.NDArray[Any]  #: shape [num_rows], int32, see `Encoded`
    #: position of a row -> why it has no mask; its tokens are ignored
    errors: Mapping[int, RowError] = field(default_factory=dict)


class Encoder(Protocol):
    """Turns rows into ids and token-aligned masks; each row's result is independent of the others."""

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row, ready to be encoded; raises RowError if it cannot become a sequence."""
        ...

    def encode(self, rows: Sequence[Any]) -> FlatBatch:
        """Return the tokens of rows; takes the `value` of each prepared row."""
        ...


def encode_examples(encoder: Encoder, examples: Sequence[Mapping[str, Any]]) -> list[Encoded | RowError]:
    """Return ids and mask or the row's error, one per example, in order."""
    results: list[Encoded | RowError | None] = []
    prepared = []
    for columns in examples:
        try:
            prepared.append(encoder.prepare(columns))
            results.append(None)
        except RowError as error:
            results.append(error)
    batch = encoder.encode([item.value for item in prepared])
    ids, mask, offsets = batch.input_ids.tolist(), batch.loss_mask.tolist(), batch.offsets.tolist()
    made = (
        batch.errors.get(index)
        or Encoded(ids[start:stop], mask[start:stop], int(batch.num_context[index]), prepared[index].losses)
        for index, (start, stop) in enumerate(pairwise(offsets))
    )
    return [next(made) if result is None else result for result in results]


def mask_out(mask: MaskArray, input_ids: TokenArray, never_trained_ids: Sequence[int]) -> None:
    """Set a mask, shape [num_tokens], to 0 at tokens that Megatron-Bridge never trains, in place."""
    for token in never_trained_ids:
        mask[input_ids == token] = 0
