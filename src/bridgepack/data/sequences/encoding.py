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

#: Prompt and completion columns of common data sets.
_KNOWN_PAIRS = (
    *(("question", "answer"), ("instruction", "output"), ("instruction", "response")),
    *(("input", "output"), ("query", "response")),
)
_TURNS = "conversation_column"


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


def columns_hint(columns: Mapping[str, Any]) -> str:
    """Return a hint which fields would read a row that lacks the recipe's columns: `; set ...`, or empty."""
    fields = fields_that_read(columns)
    if "prompt_column" in fields:
        return "; set preprocessing." + " and ".join(f"{name} to {column}" for name, column in fields.items())
    return f"; set preprocessing.kind to chat, and conversation_column to {fields[_TURNS]}" if fields else ""


def fields_that_read(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the `preprocessing` fields of kind chat that would read such a row; empty if that is unclear.

    {"question": "2 + 2?", "answer": "4"} -> {"prompt_column": "question", "completion_column": "answer"}
    """
    for prompt, completion in _KNOWN_PAIRS:
        if isinstance(columns.get(prompt), str) and isinstance(columns.get(completion), str):
            return {"prompt_column": prompt, "completion_column": completion}
    for name, turns in columns.items():
        kinds = ({"role", "content"}, {"from", "value"})
        if (
            isinstance(turns, list)
            and turns
            and all(isinstance(turn, Mapping) and any(kind <= turn.keys() for kind in kinds) for turn in turns)
        ):
            return {_TURNS: name}
    return {}


def mask_out(mask: MaskArray, input_ids: TokenArray, never_trained_ids: Sequence[int]) -> None:
    """Set a mask, shape [num_tokens], to 0 at tokens that Megatron-Bridge never trains, in place."""
    for token in never_trained_ids:
        mask[input_ids == token] = 0
