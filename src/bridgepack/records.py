"""Frozen values passed between stages, column names and dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray

TokenArray = npt.NDArray[np.int32]
MaskArray = npt.NDArray[np.int8]

#: Columns the host's reader requires (megatron-bridge 0.6.2, data/packing/parquet.py REQUIRED_COLUMNS).
INPUT_IDS = "input_ids"
LOSS_MASK = "loss_mask"
SEQ_START_ID = "seq_start_id"
ROW_COLUMNS = (INPUT_IDS, LOSS_MASK, SEQ_START_ID)

TRAIN = "training"
VALIDATION = "validation"
SPLITS = (TRAIN, VALIDATION)


class DropReason(StrEnum):
    """Why an input row gave no sequence; the value is what the ledger and the manifest say."""

    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    INVALID_FIELD = "invalid_field"
    EMPTY_CONVERSATION = "empty_conversation"
    UNKNOWN_ROLE = "unknown_role"
    TEMPLATE_ERROR = "template_error"
    CONTROL_TOKENS_IN_TEXT = "control_tokens_in_text"
    NO_ASSISTANT_MASK = "no_assistant_mask"
    TOO_SHORT = "too_short"
    OVER_LONG = "over_long"
    NO_TRAINED_TOKEN = "no_trained_token"
    TRUNCATED_NO_TRAINED_TOKEN = "truncated_no_trained_token"
    TOKEN_OUT_OF_VOCABULARY = "token_out_of_vocabulary"


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One source row before tokenisation.

    Attributes:
        file_index: position of its file in the split's list of inputs.
        row: 1-based; the line in a JSON Lines file, the row in a Parquet or Arrow file, the element of a JSON array.
        columns: the row as read.
    """

    file_index: int
    row: int
    columns: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """One tokenised example.

    Attributes:
        input_ids: shape [stored_length], int32.
        loss_mask: shape [stored_length], int8, token-aligned: 1 where this token is trained as a target.
        is_truncated: it was cut to the longest length the recipe allows.
    """

    input_ids: TokenArray
    loss_mask: MaskArray
    is_truncated: bool = False

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
    """One input row that gave no sequence.

    Attributes:
        file_index: position of its file in the split's list of inputs.
        row: 1-based, as in `Example`.
        reason: why.
        detail: what was found.
    """

    file_index: int
    row: int
    reason: DropReason
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PackPlan:
    """Which sequence lies in which pack: a list of lists in two arrays.

    Attributes:
        sequence_order: shape [num_sequences], int64: sequence indices, pack after pack, in row order.
        pack_offsets: shape [num_packs + 1], int64: pack `p` is `sequence_order[pack_offsets[p]:pack_offsets[p + 1]]`.
        packed_sequence_size: runtime tokens a pack can hold.
    """

    sequence_order: IntArray
    pack_offsets: IntArray
    packed_sequence_size: int

    @property
    def num_packs(self) -> int:
        """Number of packs."""
        return len(self.pack_offsets) - 1

    def pack(self, index: int) -> IntArray:
        """Return the sequence indices of one pack, in row order."""
        return self.sequence_order[self.pack_offsets[index] : self.pack_offsets[index + 1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowBatch:
    """Consecutive rows of one shard, as flat arrays; nothing in it is checked.

    Attributes:
        shard: file name of the shard, relative to the artifact.
        first_row: 0-based index, within the shard, of the batch's first row.
        input_ids: shape [sum of stored row lengths], integer, stored.
        token_offsets: shape [num_rows + 1], int64: row `r` is `input_ids[token_offsets[r]:token_offsets[r + 1]]`.
        loss_mask: shape [sum of mask lengths], number, label-aligned (rolled left inside each sequence).
        mask_offsets: shape [num_rows + 1], int64, for `loss_mask`.
        seq_start_id: shape [sum of numbers of sequences], integer, stored.
        start_offsets: shape [num_rows + 1], int64, for `seq_start_id`.
    """

    shard: str
    first_row: int
    input_ids: npt.NDArray[Any]
    token_offsets: IntArray
    loss_mask: npt.NDArray[Any]
    mask_offsets: IntArray
    seq_start_id: npt.NDArray[Any]
    start_offsets: IntArray

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
    """One pack as stored.

    Attributes:
        input_ids: shape [stored_row_length], integer, stored.
        loss_mask: shape [stored_row_length], 0 or 1, label-aligned (rolled left by one inside each sequence).
        seq_start_id: shape [num_sequences], integer, stored; first is 0, the row's end is not included.
    """

    input_ids: npt.NDArray[Any]
    loss_mask: npt.NDArray[Any]
    seq_start_id: npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """One Parquet file of an artifact, as its manifest has it.

    Attributes:
        path: relative to the artifact, e.g. `training/shard-00000-of-00008.idx.parquet`.
        num_rows: packs in it.
        num_bytes: size of the file.
        sha256: of the file's bytes, hexadecimal.
    """

    path: str
    num_rows: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitStatistics:
    """What a split holds. Token counts are runtime tokens unless a name says otherwise.

    Attributes:
        num_rows_in: input rows read (blank lines are not rows).
        num_blank_lines: empty lines skipped in JSON Lines files.
        num_sequences: sequences packed.
        num_truncated: sequences among them that were cut.
        num_packs: rows of the artifact.
        num_tokens: logical runtime tokens, alignment padding not counted.
        num_alignment_tokens: padding inside sequences, to the multiple.
        num_trained_tokens: ones of the stored loss mask.
        max_runtime_length: longest sequence, alignment padding included.
        max_sequences_per_pack: most sequences in one pack.
        min_pack_tokens: runtime tokens of the emptiest pack, alignment padding included.
        length_histogram: (upper bound of the bucket in runtime tokens, number of sequences), ascending.
    """

    num_rows_in: int
    num_blank_lines: int
    num_sequences: int
    num_truncated: int
    num_packs: int
    num_tokens: int
    num_alignment_tokens: int
    num_trained_tokens: int
    max_runtime_length: int
    max_sequences_per_pack: int
    min_pack_tokens: int
    length_histogram: tuple[tuple[int, int], ...]

    @property
    def sequences_per_pack(self) -> float:
        """Mean number of sequences in a pack."""
        return self.num_sequences / self.num_packs if self.num_packs else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRecord:
    """One input file, as the manifest has it.

    Attributes:
        path: as the recipe names it; for files found in a directory or by a glob, the file's own path.
        num_bytes: size of the file.
        sha256: of the file's bytes, hexadecimal.
        num_rows: rows read from it.
    """

    path: str
    num_bytes: int
    sha256: str
    num_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRecord:
    """One split of an artifact.

    Attributes:
        name: `training` or `validation`.
        inputs: files read, in order; `file_index` elsewhere counts into this.
        shards: files written, in order.
        statistics: what they hold.
        drops: number of dropped rows per reason, all reasons that occurred.
        drop_examples: the first few drops of each reason.
    """

    name: str
    inputs: tuple[InputRecord, ...]
    shards: tuple[ShardRecord, ...]
    statistics: SplitStatistics
    drops: Mapping[str, int]
    drop_examples: tuple[Drop, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What an artifact is; written last, so a folder without one is no artifact.

    Attributes:
        format_version: of the artifact's layout.
        fingerprint: sha256, hexadecimal, of everything that can change a row.
        packed_sequence_size: runtime tokens a pack can hold.
        pad_seq_to_mult: multiple of every sequence's physical runtime length.
        tokenizer: what rows depend on: `name_or_path`, `vocab_size`, `eos_token_id`, `files` (name -> sha256), ...
        recipe: the recipe as written, every field.
        resolved: derived values and why.
        splits: training first.
        versions: bridgepack and the libraries whose version can change a row.
    """

    format_version: int
    fingerprint: str
    packed_sequence_size: int
    pad_seq_to_mult: int
    tokenizer: Mapping[str, Any]
    recipe: Mapping[str, Any]
    resolved: Mapping[str, Any]
    splits: tuple[SplitRecord, ...]
    versions: Mapping[str, str]

    def split(self, name: str) -> SplitRecord | None:
        """Return the split of that name, or None."""
        return next((split for split in self.splits if split.name == name), None)

    def fill_fraction(self, split: SplitRecord) -> float:
        """Return runtime tokens used / capacity of the split, 0-1, alignment padding not counted as use."""
        capacity = split.statistics.num_packs * self.packed_sequence_size
        return split.statistics.num_tokens / capacity if capacity else 0.0


class ArtifactView(Protocol):
    """An artifact as the rules, the proof and the report read it."""

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        ...

    def iter_batches(self, split: str, *, max_tokens: int = 1 << 22) -> Iterator[RowBatch]:
        """Yield the split's rows in order, in batches of bounded memory."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        code: of the rule, `BP` and three digits.
        name: of the wrong thing, e.g. `row-wider-than-pack`.
        severity: `error` or `warning`.
        where: file, row or field.
        found: the value.
        allowed: what it may be.
        why: what happens otherwise, in one line.
        fix: what to do.
        num_occurrences: how many places of this kind there are; `where` names the first.
        examples: the first few places.
    """

    code: str
    name: str
    severity: str
    where: str
    found: str
    allowed: str
    why: str
    fix: str
    num_occurrences: int = 1
    examples: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFacts:
    """One Parquet file as it lies on disk; nothing in it is checked.

    Attributes:
        path: relative to the artifact, as in `ShardRecord`.
        exists: the file is there.
        num_bytes: its size; None where it is missing.
        sha256: of its bytes, hexadecimal; None where it is missing or was not computed.
        columns: column name -> Arrow type as text, e.g. `list<element: int32>`; empty where the footer is unreadable.
        num_rows: from the footer; None where it is unreadable.
        row_group_rows: rows of each row group, from the footer.
        row_group_tokens: stored tokens of each row group, from the footer (`num_values` of `input_ids`).
        read_error: why the footer could not be read, in one line; None where it could.
    """

    path: str
    exists: bool
    num_bytes: int | None = None
    sha256: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    num_rows: int | None = None
    row_group_rows: tuple[int, ...] = ()
    row_group_tokens: tuple[int, ...] = ()
    read_error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataFacts:
    """The host's metadata file as it lies on disk; nothing in it is checked.

    Attributes:
        path: relative to the artifact.
        exists: the file is there.
        content: the parsed JSON; None where the file is missing or is no JSON.
        read_error: why it could not be parsed, in one line; None where it could.
    """

    path: str
    exists: bool
    content: Any = None
    read_error: str | None = None


class InspectableArtifact(Protocol):
    """A folder of packed shards as `bridgepack check` reads it: broken files are facts here, not exceptions."""

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""
        ...

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first: those of the manifest, or those found where there is none."""
        ...

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: those the manifest lists, or those found."""
        ...

    def unlisted_shards(self) -> tuple[str, ...]:
        """Return paths of Parquet files in the artifact that its manifest does not list, sorted."""
        ...

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
        ...

    def iter_shard_batches(self, shard: str, *, max_tokens: int) -> Iterator[RowBatch]:
        """Yield the rows of one shard in order, in batches of bounded memory.

        Raises:
            ArtifactError: the shard cannot be read to its end, or a row or an element of it is null.
        """
        ...
