"""Examples, sequences, plans and rows; column names and dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.host import HostRelease

TokenArray = npt.NDArray[np.int32]
MaskArray = npt.NDArray[np.int8]

#: Columns the host's reader requires (megatron-bridge 0.6.2, data/packing/parquet.py REQUIRED_COLUMNS).
INPUT_IDS = "input_ids"
LOSS_MASK = "loss_mask"
SEQ_START_ID = "seq_start_id"
ROW_COLUMNS = (INPUT_IDS, LOSS_MASK, SEQ_START_ID)

ASSISTANT = "assistant"
TRAIN = "training"
VALIDATION = "validation"
SPLITS = (TRAIN, VALIDATION)


class DropReason(StrEnum):
    """Why an input row gave no sequence; the values are written to the ledger and the manifest."""

    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    INVALID_FIELD = "invalid_field"
    EMPTY_CONVERSATION = "empty_conversation"
    UNKNOWN_ROLE = "unknown_role"
    TEMPLATE_ERROR = "template_error"
    CONTROL_TOKENS_IN_TEXT = "control_tokens_in_text"
    LOST_CONTENT = "lost_content"
    NO_ASSISTANT_MASK = "no_assistant_mask"
    BOUNDARY_IN_TOKEN = "boundary_in_token"
    TOO_SHORT = "too_short"
    OVER_LONG = "over_long"
    NO_TRAINED_TOKEN = "no_trained_token"
    TRUNCATED_NO_TRAINED_TOKEN = "truncated_no_trained_token"
    DUPLICATE = "duplicate"
    TOKEN_OUT_OF_VOCABULARY = "token_out_of_vocabulary"
    ROW_TOO_LARGE = "row_too_large"
    TOKENIZER_FAILED = "tokenizer_failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_OUT = "time_out"
    NOT_SAMPLED = "not_sampled"


class LostKind(StrEnum):
    """Kind of content that a row's text lacks or garbles; the values are written to the ledger and the manifest."""

    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_ARGUMENTS = "tool_arguments"
    TOOL_RESULT = "tool_result"
    TOOLS = "tools"
    CONTENT_PARTS = "content_parts"
    NULL_AS_NONE = "null_as_none"
    DOUBLE_ENCODED = "double_encoded"
    REASONING = "reasoning"
    INJECTED_TURN = "injected_turn"
    WEIGHT = "weight"
    TEMPLATE_KWARGS = "template_kwargs"
    UNREAD_VARIABLE = "unread_variable"
    NO_REASONING = "no_reasoning"
    UNREAD = "unread"
    DOUBLED_TOKEN = "doubled_token"
    NO_SCHEMAS = "no_schemas"
    TOOL_SCHEMA = "tool_schema"
    NO_END = "no_end"
    EARLIER_REASONING = "earlier_reasoning"
    CUT_HISTORY = "cut_history"
    RENDERED_CHAT = "rendered_chat"
    EMPTY_ANSWER = "empty_answer"
    INLINE_THOUGHTS = "inline_thoughts"
    MEDIA = "media"


#: Kinds that are reported but never drop a row: templates may omit thoughts, and the others lose no text.
TOLERATED_LOSSES = frozenset(
    {
        *(LostKind.REASONING, LostKind.EARLIER_REASONING, LostKind.NO_REASONING, LostKind.INJECTED_TURN),
        *(LostKind.WEIGHT, LostKind.TEMPLATE_KWARGS, LostKind.UNREAD_VARIABLE, LostKind.NO_END),
        *(LostKind.DOUBLED_TOKEN, LostKind.NO_SCHEMAS, LostKind.TOOL_SCHEMA, LostKind.RENDERED_CHAT),
        *(LostKind.CUT_HISTORY, LostKind.EMPTY_ANSWER, LostKind.INLINE_THOUGHTS),
    }
)
_OTHER_TEMPLATE = "set tokenizer.chat_template to a template that writes"
_THOUGHT_SWITCH = (
    "set the template's variable for thoughts, such as enable_thinking: true, in tokenizer.chat_template_kwargs and at "
    "the server, if it has one"
)
#: The default; other values suit some templates only.
_AUTO = "leave preprocessing.{} at auto"
#: How to fix each kind of loss.
LOSS_CURES: Mapping[str, str] = {
    LostKind.TEXT: f"{_OTHER_TEMPLATE} every text in its turn, or correct the rows",
    LostKind.TOOL_CALL: f"{_AUTO.format('null_content')}, write calls as tool_calls, or {_OTHER_TEMPLATE} calls",
    LostKind.TOOL_ARGUMENTS: f"{_AUTO.format('tool_arguments')}, {_OTHER_TEMPLATE} arguments, or correct the rows",
    LostKind.TOOL_RESULT: f"{_OTHER_TEMPLATE} turns of the role tool",
    LostKind.TOOLS: f"{_OTHER_TEMPLATE} tool schemas, or remove them from the rows",
    LostKind.CONTENT_PARTS: f"{_AUTO.format('content_parts')}; for parts that are no text, set it to drop",
    LostKind.NULL_AS_NONE: _AUTO.format("null_content"),
    LostKind.DOUBLE_ENCODED: f"{_AUTO.format('tool_arguments')}, or correct the rows",
    LostKind.REASONING: f"{_THOUGHT_SWITCH}, {_OTHER_TEMPLATE} the column, or put the reasoning into the content",
    LostKind.INJECTED_TURN: "set preprocessing.control_tokens to drop, or clean the text",
    LostKind.WEIGHT: "set preprocessing.message_weights to mask, or name the field in the layout's ignore",
    LostKind.TEMPLATE_KWARGS: "set chat_template_kwargs of data.layout to chat_template_kwargs",
    LostKind.UNREAD_VARIABLE: "correct the name in the rows, remove it, or train with a template that reads it",
    LostKind.UNREAD: "read the field by data.layout, or name it in the layout's ignore",
    LostKind.NO_REASONING: "put the reasoning between markers that the template writes, or set reasoning_loss to keep",
    LostKind.DOUBLED_TOKEN: "set preprocessing.add_eos to false (add_bos for BOS), or remove the text from the rows",
    LostKind.NO_SCHEMAS: "name the column of the schemas in tools of data.layout, or set preprocessing.tool_schemas",
    LostKind.TOOL_SCHEMA: "write the parameters as {type: object, properties: {city: {type: string}}}",
    LostKind.NO_END: f"{_OTHER_TEMPLATE} an end after every answer, and name it in preprocessing.assistant_markers",
    LostKind.CUT_HISTORY: ("on purpose, by preprocessing.over_long; raise packing.max_sequence_length to keep more"),
    LostKind.EMPTY_ANSWER: "set preprocessing.empty_answers to drop, or correct the rows",
    LostKind.INLINE_THOUGHTS: (
        "set preprocessing.inline_thoughts to move, which puts them where the template has thoughts; for a template "
        "without thoughts, set tokenizer.chat_template to another, or correct the rows"
    ),
    LostKind.MEDIA: (
        "such rows are not text alone: remove them, or, if they are at most a fifth of the data (BP543), set "
        "preprocessing.on_lost_content to drop"
    ),
    LostKind.RENDERED_CHAT: "cut the text at its turns into a column messages, and read that with layout kind chat",
    LostKind.EARLIER_REASONING: (
        "the model is trained to answer there without thinking; where the template writes the thought of a last "
        "answer, set preprocessing.split_conversations to when_context_differs or preprocessing.loss_mode to "
        f"last_turn; otherwise {_THOUGHT_SWITCH}, or {_OTHER_TEMPLATE} earlier reasoning"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """One tokenised example."""

    input_ids: TokenArray  #: shape [stored_length], int32
    loss_mask: MaskArray  #: shape [stored_length], int8, token-aligned: 1 where this token is trained as a target
    is_truncated: bool = False  #: it was cut to the maximum length that the recipe allows
    first_token: int = 0  #: start in its row, see `PlanEntry`; 0 unless the row became several sequences

    @property
    def stored_length(self) -> int:
        """Tokens stored."""
        return len(self.input_ids)

    @property
    def runtime_length(self) -> int:
        """Tokens the model sees: stored - 1."""
        return len(self.input_ids) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """One input row that gave no sequence, or a piece of a row that was dropped while others stay."""

    file_index: int  #: index of its file in the split's list of inputs
    #: 1-based; the line in a JSON Lines file, the row in a Parquet or Arrow file, the element of a JSON array
    row: int
    reason: DropReason
    detail: str
    first_token: int | None = None  #: of a piece, its start in the row, see `PlanEntry`; None for a row


@dataclass(frozen=True, kw_only=True, slots=True)
class LostContent:
    """Content of a row that its sequence lacks or garbles."""

    file_index: int  #: index of its file in the split's list of inputs
    row: int  #: 1-based, see `Drop`
    kind: LostKind
    detail: str


class UnreadCount(NamedTuple):
    """A column or a field of turns that nobody reads, in some rows."""

    name: str  #: the column, or `messages.FIELD`
    holds: str  #: `text`, `flag` or `identifier`
    num_rows: int  #: rows in which it holds something
    row_offset: int  #: 0-based, within its range, of the first of them
    example: str  #: beginning of its value there


@dataclass(frozen=True, kw_only=True, slots=True)
class PackPlan:
    """Which sequences are in which pack: a list of lists, as two arrays."""

    sequence_order: IntArray  #: shape [num_sequences], int64: sequence indices, pack after pack, in row order
    #: shape [num_packs + 1], int64: pack `p` is `sequence_order[pack_offsets[p]:pack_offsets[p + 1]]`
    pack_offsets: IntArray
    packed_sequence_size: int  #: runtime tokens a pack can hold

    @property
    def num_packs(self) -> int:
        """Number of packs."""
        return len(self.pack_offsets) - 1

    def pack(self, index: int) -> IntArray:
        """Return the sequence indices of one pack, in row order."""
        return self.sequence_order[self.pack_offsets[index] : self.pack_offsets[index + 1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowBatch:
    """Consecutive rows of one shard, as flat, unchecked arrays."""

    shard: str  #: file name, relative to the artifact
    first_row: int  #: 0-based index, within the shard, of the batch's first row
    input_ids: npt.NDArray[Any]  #: shape [sum of stored row lengths], integer, stored
    token_offsets: IntArray  #: [num_rows + 1], int64: row `r` is `input_ids[token_offsets[r]:token_offsets[r + 1]]`
    loss_mask: npt.NDArray[Any]  #: shape [sum of mask lengths], number, label-aligned (rolled left in each sequence)
    mask_offsets: IntArray  #: shape [num_rows + 1], int64, for `loss_mask`
    seq_start_id: npt.NDArray[Any]  #: shape [sum of numbers of sequences], integer, stored
    start_offsets: IntArray  #: shape [num_rows + 1], int64, for `seq_start_id`

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.token_offsets) - 1

    def row(self, index: int) -> PackedRow:
        """Return one row of the batch by its 0-based position in it."""
        return PackedRow(
            input_ids=self.input_ids[self.token_offsets[index] : self.token_offsets[index + 1]],
            loss_mask=self.loss_mask[self.mask_offsets[index] : self.mask_offsets[index + 1]],
            seq_start_id=self.seq_start_id[self.start_offsets[index] : self.start_offsets[index + 1]],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """One pack as stored."""

    input_ids: npt.NDArray[Any]  #: shape [stored_row_length], integer, stored
    loss_mask: npt.NDArray[Any]  #: shape [stored_row_length], 0 or 1, label-aligned (rolled left in each sequence)
    seq_start_id: npt.NDArray[Any]  #: shape [num_sequences], integer, stored; starts with 0, without the row's end


class RowNote(NamedTuple):
    """A row that gave no sequence, or content of a row that its text lacks or garbles."""

    row_offset: int  #: 0-based row within its range
    kind: str  #: value of a `DropReason` or a `LostKind`
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBatch:
    """Uncut sequences of consecutive rows of a range, in row order."""

    input_ids: TokenArray  #: shape [num_tokens], int32, stored
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned: 1 where this token is trained as a target
    offsets: IntArray  #: shape [num_sequences + 1], int64: sequence `i` is `input_ids[offsets[i]:offsets[i + 1]]`
    row_offsets: IntArray  #: shape [num_sequences], int64, 0-based row within the range
    #: shape [num_sequences], int32, leading tokens before the completion; -1 if not applicable
    num_context: IntArray
    drops: tuple[RowNote, ...] = ()  #: rows that gave no sequence, independent of the recipe's sizes
    losses: tuple[RowNote, ...] = ()  #: losses in row order, one per kind and row; also of dropped rows
    unread: tuple[UnreadCount, ...] = ()  #: what nobody reads, each name and what it holds once
    num_read: tuple[int, ...] = ()  #: rows that each layout of the source has read; shorter if the last ones read none
    num_rows: int = 0  #: rows read, drops included
    num_blank_lines: int = 0  #: blank lines


def token_counts(
    input_ids: TokenArray, loss_mask: MaskArray, offsets: IntArray, eos_token_id: int
) -> tuple[IntArray, IntArray]:
    """Return (trained labels per sequence, those of them that every release of the host trains).

    The first token of a sequence is never a label; up to 0.6 the host skips labels whose input is EOS.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py, collate_fn.
    """
    starts = offsets[:-1]
    if not len(starts):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    is_trained_label = loss_mask != 0
    is_trained_label[starts] = False
    is_learned_label = is_trained_label.copy()
    is_learned_label[1:] &= input_ids[:-1] != eos_token_id
    return np.add.reduceat(is_trained_label, starts, dtype=np.int64), np.add.reduceat(
        is_learned_label, starts, dtype=np.int64
    )


def is_learned(
    loss_mask: npt.NDArray[Any], inputs: npt.NDArray[Any], *, eos_token_id: int, release: HostRelease
) -> npt.NDArray[np.bool_]:
    """Return which labels a host trains, of the mask and the input token of each; all have one shape.

    Up to 0.6 the host clears the mask of labels whose input is EOS.

    Source: megatron-bridge 0.6.2 and 0.7, data/packing/gpt_sft.py (collate_fn).
    """
    is_asked: npt.NDArray[np.bool_] = loss_mask != 0
    return is_asked if release.trains_after_eos else is_asked & (inputs != eos_token_id)


def without_labels_after_eos(labels: MaskArray, inputs: TokenArray, eos_token_id: int) -> MaskArray:
    """Return a label-aligned mask with 0 where the input is EOS; all shapes [num_tokens].

    Example: inputs [5 2 9 2 8] with EOS 2, mask [1 1 1 1 0] -> [1 0 1 0 0].
    """
    return np.where(inputs == eos_token_id, labels.dtype.type(0), labels)


def summed_counts(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sums of counts by position: [2], [1, 3] -> (3, 3)."""
    return tuple(map(sum, zip_longest(*parts, fillvalue=0)))


def joined_counts(parts: Iterable[UnreadCount]) -> list[UnreadCount]:
    """Return the counts of consecutive parts, each name and what it holds once, in order of their first rows."""
    counts: dict[tuple[str, str], UnreadCount] = {}
    for part in parts:
        count = counts.get(part[:2])
        counts[part[:2]] = part if count is None else count._replace(num_rows=count.num_rows + part.num_rows)
    return list(counts.values())
