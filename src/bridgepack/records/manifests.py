"""The contents of an artifact's manifest: shards, splits, statistics, drops."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridgepack.records.balance import BalanceRecord
from bridgepack.records.sequences import Drop, DropReason, LostContent


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """Record of one Parquet file in an artifact's manifest."""

    path: str  #: relative to the artifact, e.g. `training/shard-00000-of-00008.idx.parquet`.
    num_rows: int
    num_bytes: int
    sha256: str  #: sha256 of the file's bytes, hexadecimal


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """Record of another file in an artifact's manifest."""

    path: str  #: relative to the artifact, e.g. `plan/training.parquet`
    num_bytes: int
    sha256: str  #: sha256 of the file's bytes, hexadecimal


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitStatistics:
    """Statistics of a split. Token counts are runtime tokens unless a name says otherwise.

    Attributes:
        num_rows_in: input rows read (blank lines are not rows).
        num_blank_lines: empty lines skipped in JSON Lines files.
        num_sequences: sequences packed; repeated ones count each time.
        num_truncated: sequences among them that were cut and lost tokens.
        num_repeated: sequences among them that repeat earlier ones, because the mixture uses rows more than once.
        num_tokens: logical runtime tokens, without alignment padding.
        num_alignment_tokens: padding inside sequences, to the multiple.
        num_trained_tokens: tokens with stored loss mask 1.
        max_runtime_length: longest sequence, with alignment padding.
        max_sequences_per_pack: maximum sequences in one pack.
        min_pack_tokens: runtime tokens of the emptiest pack, with alignment padding.
        length_histogram: (upper bound of the bucket in runtime tokens, number of sequences), ascending.
        num_split: rows that were split into pieces without losing trained tokens.
        num_pieces: sequences that are such pieces.
        num_untrained_pieces: pieces that were left out because they have no trained tokens.
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
    num_repeated: int = 0
    num_split: int = 0
    num_pieces: int = 0
    num_untrained_pieces: int = 0

    @property
    def num_rows_packed(self) -> int:
        """Number of rows that became one or more sequences."""
        return self.num_sequences - self.num_repeated - self.num_pieces + self.num_split

    @property
    def sequences_per_pack(self) -> float:
        """Mean number of sequences in a pack."""
        return self.num_sequences / self.num_packs if self.num_packs else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRecord:
    """Record of one input file in the manifest."""

    path: str  #: as the recipe names it; for files found in a directory or by a glob, the file's own path
    num_bytes: int
    sha256: str  #: sha256 of the file's bytes, hexadecimal
    num_rows: int
    num_duplicates: int = 0  #: rows dropped from the split because an earlier row has the same tokens and mask
    source: int = 0  #: index of its source in `SplitRecord.sources`


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRecord:
    """Totals of a split for one source."""

    name: tuple[str, ...]  #: its name in reports, after those of the mixtures around it
    num_rows_in: int
    num_sequences: int  #: packed sequences; repeated ones count each time
    num_repeated: int
    num_tokens: int  #: packed runtime tokens
    num_trained_tokens: int
    share_asked: float | None  #: requested share of the split (0-1), in the unit of the mixture; None without a weight
    share_got: float  #: actual share of the split (0-1), in the unit of the mixture


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRecord:
    """One split of an artifact.

    Attributes:
        name: `training` or `validation`.
        inputs: files read, in order; `file_index` elsewhere is an index into it.
        drops: number of dropped rows per reason that occurred.
        drop_examples: the first few drops of each reason.
        lost_content: number of sequences whose text lacks or garbles content of the row, per kind.
        lost_examples: the first few losses of each kind.
        sources: the recipe's sources, in its order.
    """

    name: str
    inputs: tuple[InputRecord, ...]
    shards: tuple[ShardRecord, ...]
    statistics: SplitStatistics
    drops: Mapping[str, int]
    drop_examples: tuple[Drop, ...]
    lost_content: Mapping[str, int] = field(default_factory=dict)
    lost_examples: tuple[LostContent, ...] = ()
    sources: tuple[SourceRecord, ...] = ()

    @property
    def is_mixture(self) -> bool:
        """Whether it has several sources, or uses sequences of them repeatedly or not at all."""
        return len(self.sources) > 1 or self.statistics.num_repeated > 0 or DropReason.NOT_SAMPLED in self.drops


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Description of an artifact; written last, so a folder without one is not an artifact.

    Attributes:
        fingerprint: sha256, hexadecimal, of everything that can change a row.
        packed_sequence_size: runtime tokens that a pack can hold.
        pad_seq_to_mult: multiple of every sequence's physical runtime length.
        tokenizer: what rows depend on: `name_or_path`, `vocab_size`, `eos_token_id`, `files` (name -> sha256), ...
        recipe: the recipe as written, every field.
        versions: bridgepack and the libraries whose version can change a row.
        files: every file except shards and manifest; empty in format version 3 and older.
        sha256: sha256 of the manifest without this field, hexadecimal; empty until written, and in older versions.
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
    files: tuple[FileRecord, ...] = ()
    sha256: str = ""

    @property
    def balance(self) -> BalanceRecord | None:
        """What the order of the training packs was balanced for; None if it was not."""
        if (found := self.resolved.get("balance")) is None:
            return None
        return BalanceRecord(**{**found["value"], "windows": tuple(map(tuple, found["value"]["windows"]))})

    def split(self, name: str) -> SplitRecord | None:
        """Return the split of that name, or None."""
        return next((split for split in self.splits if split.name == name), None)

    def fill_fraction(self, split: SplitRecord) -> float:
        """Return runtime tokens used / capacity of the split, 0-1; alignment padding does not count as used."""
        capacity = split.statistics.num_packs * self.packed_sequence_size
        return split.statistics.num_tokens / capacity if capacity else 0.0
