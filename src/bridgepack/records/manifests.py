"""The contents of an artifact's manifest: shards, splits, statistics, drops, the balance of its packs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bridgepack.records.sequences import Drop, DropReason, LostContent
from bridgepack.records.served import ServedRecord
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceRecord:
    """What an order of packs is balanced for; `resolved.balance` in the manifest."""

    kind: str  #: `within_batch` or `across_batches`
    window_batches: int  #: steps that exchange packs; 1 within a batch
    seed: int  #: seed for the order of steps within a window
    token_cost: int  #: cost of a token, in units of a pair of tokens that attend to each other
    #: (window in tokens, share of a pair's cost, 0-1, in layers with that attention window)
    windows: tuple[tuple[int, float], ...]
    matches_micro_batches: bool  #: packs of like cost share a micro batch, as stages or experts meet in each
    version: str  #: version of Megatron-Bridge whose loader reads the packs
    loader: str  #: `dataset.dataloader_type`
    loader_seed: int  #: `dataset.seed`
    data_sharding: bool  #: `dataset.data_sharding`
    data_parallel_size: int
    global_batch_size: int  #: packs per step
    #: with `matches_micro_batches`, the packs of a step rise in cost, then fall; older orders only fall
    begins_cheap: bool = False

    def values(self) -> dict[str, Any]:
        """Return the record for the manifest, as older records are: without `begins_cheap` where it is False."""
        record = asdict(self)
        return record if self.begins_cheap else {name: record[name] for name in record if name != "begins_cheap"}

    def describe(self) -> str:
        """Return the record as text."""
        window = f" over {self.window_batches} steps" if self.window_batches > 1 else ""
        seed = f", seed {self.loader_seed}" if self.loader == "batch" else ""
        return (
            f"{self.kind}{window}, for {self.data_parallel_size} data-parallel ranks, {self.global_batch_size} packs a "
            f"step, loader {self.loader}{seed}; in the first epoch"
        )

    def differences(self, run: Self) -> dict[str, tuple[Any, Any]]:
        """Return name -> (value here, value in `run`) of differences that change which packs a rank reads."""
        names = ["loader", "loader_seed", "data_parallel_size", "global_batch_size"]
        if self.loader == "single":
            names.remove("loader_seed")
        elif self.loader == "cyclic":
            names[1] = "data_sharding"
        values_of = {name: (getattr(self, name), getattr(run, name)) for name in names}
        return {name: (value, run_value) for name, (value, run_value) in values_of.items() if value != run_value}


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRatios:
    """Step time / its time if every pack cost the mean: mean, 95th percentile and maximum of the steps."""

    mean: float
    p95: float
    worst: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """How long ranks wait for the slowest rank, in the first epoch of a run over an artifact."""

    run: BalanceRecord  #: what an order for this run would be balanced for
    built: BalanceRecord | None  #: what the packs were balanced for; None if they were not
    num_steps: int  #: whole steps of the epoch
    share_of_run: float  #: fraction of the run's steps (0-1) in that epoch
    as_built: StepRatios  #: ratios with the packs in their present order
    shuffled: StepRatios  #: ratios with the packs in random order
    within_batch: StepRatios  #: ratios if balanced within each step
    across_batches: StepRatios  #: ratios if balanced across the steps of a window

    @property
    def gain(self) -> float:
        """Fraction of the run's compute time (0-1) that the better kind would save."""
        best = min(self.within_batch.mean, self.across_batches.mean)
        return (1 - best / self.as_built.mean) * self.share_of_run

    @property
    def gain_of_one_pass(self) -> float:
        """Fraction of the run's compute time (0-1) that balancing all epochs would save beyond balancing the first."""
        return (1 - self.as_built.mean / self.shuffled.mean) * (1 - self.share_of_run)


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
    """Statistics of a split. Token counts are runtime tokens unless a name says otherwise."""

    num_rows_in: int  #: input rows read (blank lines are not rows)
    num_blank_lines: int  #: empty lines skipped in JSON Lines files
    num_sequences: int  #: sequences packed; repeated ones count each time
    num_truncated: int  #: sequences among them that were cut and lost tokens
    num_packs: int  #: Parquet rows of all shards
    num_tokens: int  #: logical runtime tokens, without alignment padding
    num_alignment_tokens: int  #: padding inside sequences, to the multiple
    num_trained_tokens: int  #: tokens with stored loss mask 1
    max_runtime_length: int  #: longest sequence, with alignment padding
    max_sequences_per_pack: int
    min_pack_tokens: int  #: runtime tokens of the emptiest pack, with alignment padding
    #: (upper bound of the bucket in runtime tokens, number of sequences), ascending
    length_histogram: tuple[tuple[int, int], ...]
    num_repeated: int = 0  #: sequences that repeat earlier ones, because the mixture uses rows more than once
    num_split: int = 0  #: rows that were split into pieces: over-long ones, and conversations
    num_pieces: int = 0  #: sequences that are such pieces, without repetitions
    num_untrained_pieces: int = 0  #: pieces that were left out because they have no trained tokens
    #: split rows of which a piece was dropped, duplicates of packed ones included; `dropped_pieces` says why
    num_partly_packed: int = 0
    #: tokens that splitting conversations adds: of all their sequences but the last, which shows the whole
    num_added_tokens: int = 0
    num_cut_exchanges: int = 0  #: exchanges that `truncate_history` left out; `lost_content` counts their rows
    num_cut_turns: int = 0  #: turns of these exchanges, and turns after the last answers of such rows

    @property
    def num_rows_packed(self) -> int:
        """Number of rows that became one or more sequences, packed in part included."""
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
    #: name of each layout of its source, in their order -> rows that it has read
    read_as: Mapping[str, int] = field(default_factory=dict)


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
    #: packs that hold nothing else; None where packs mix sources, and then left out of the manifest
    num_packs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadField:
    """A column, or a field of turns, that nobody reads in the rows of one source."""

    source: int  #: index of the source in `SplitRecord.sources`
    name: str  #: the column, or `messages.FIELD`
    holds: str  #: `text`, `flag` (about the loss) or `identifier`
    num_rows: int  #: rows in which it holds something, dropped ones included
    num_rows_read: int  #: rows read of the source
    file_index: int  #: index, in the split's inputs, of the file with the first of them
    row: int  #: 1-based, see `Drop`
    example: str  #: beginning of its value there


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedFiles:
    """Files below a split's folders and prefixes that were not read."""

    num_other: int  #: files of other kinds, by their names
    num_hidden: int  #: hidden files, and files in hidden folders
    examples: tuple[str, ...]  #: the first few of other kinds, else hidden ones

    def describe(self) -> str:
        """Return `3 files of other kinds and 1 hidden file were not read: a.txt, b.md, c.pdf`."""
        parts = [f"{count_text(self.num_other, 'file')} of other kinds"] if self.num_other else []
        parts += [count_text(self.num_hidden, "hidden file")] if self.num_hidden else []
        is_one = self.num_other + self.num_hidden == 1
        more = ", ..." if (self.num_other or self.num_hidden) > len(self.examples) else ""
        return f"{' and '.join(parts)} {'was' if is_one else 'were'} not read: {', '.join(self.examples)}{more}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRecord:
    """One split of an artifact."""

    name: str  #: `training` or `validation`
    inputs: tuple[InputRecord, ...]  #: files read, in order; `file_index` elsewhere is an index into it
    shards: tuple[ShardRecord, ...]
    statistics: SplitStatistics
    drops: Mapping[str, int]  #: number of dropped rows per reason that occurred
    drop_examples: tuple[Drop, ...]  #: the first few of each reason
    #: number of dropped pieces of rows that are packed in part, per reason that occurred
    dropped_pieces: Mapping[str, int] = field(default_factory=dict)
    piece_examples: tuple[Drop, ...] = ()  #: the first few of each reason
    #: number of sequences whose text lacks or garbles content of the row, per kind
    lost_content: Mapping[str, int] = field(default_factory=dict)
    lost_examples: tuple[LostContent, ...] = ()  #: the first few of each kind
    sources: tuple[SourceRecord, ...] = ()  #: the recipe's sources, in its order
    #: what nobody reads, source by source; of rows set aside for validation, in the training split
    unread: tuple[UnreadField, ...] = ()
    #: files of its folders that were not read, of those set aside for validation in the training split; left out of
    #: the manifest if there are none
    skipped_files: SkippedFiles | None = None

    @property
    def is_mixture(self) -> bool:
        """Whether it has several sources, or uses sequences of them repeatedly or not at all."""
        return len(self.sources) > 1 or self.statistics.num_repeated > 0 or DropReason.NOT_SAMPLED in self.drops


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Description of an artifact; written last, so a folder without one is not an artifact."""

    format_version: int  #: of the artifact's layout
    fingerprint: str  #: sha256, hexadecimal, of everything that can change a row
    packed_sequence_size: int  #: runtime tokens that a pack can hold
    pad_seq_to_mult: int  #: multiple of every sequence's physical runtime length
    #: what rows depend on: `name_or_path`, `vocab_size`, `eos_token_id`, `files` (name -> sha256), ...
    tokenizer: Mapping[str, Any]
    recipe: Mapping[str, Any]  #: as written, every field
    resolved: Mapping[str, Any]  #: each derived value and its reason; `balance`: what the packs' order is for
    splits: tuple[SplitRecord, ...]  #: training first
    versions: Mapping[str, str]  #: bridgepack and the libraries whose version can change a row
    files: tuple[FileRecord, ...] = ()  #: every file except shards and manifest; empty in format version 3 and older
    #: comparison of a sample of the training files' answers with served ones; None for rows that are no conversations,
    #: if it failed, and in older manifests
    served: ServedRecord | None = None
    #: of the manifest's JSON without this field, keys sorted, no spaces, ASCII; empty until written, and in older
    #: versions
    sha256: str = ""

    @property
    def balance(self) -> BalanceRecord | None:
        """What the order of the training packs was balanced for; None if it was not."""
        if (entry := self.resolved.get("balance")) is None:
            return None
        return BalanceRecord(**{**entry["value"], "windows": tuple(map(tuple, entry["value"]["windows"]))})

    def split(self, name: str) -> SplitRecord | None:
        """Return the split of that name, or None."""
        return next((split for split in self.splits if split.name == name), None)

    def headline(self) -> str:
        """Return rows, sequences, packs and drops of all splits, in one line."""
        numbers = [split.statistics for split in self.splits]
        rows = count_text(sum(statistics.num_rows_in for statistics in numbers), "row")
        sequences = count_text(sum(statistics.num_sequences for statistics in numbers), "sequence")
        packs = count_text(sum(statistics.num_packs for statistics in numbers), "pack")
        num_dropped = sum(sum(split.drops.values()) for split in self.splits)
        return f"{rows}, {sequences} in {packs}, {count_text(num_dropped, 'row')} dropped"

    def __repr__(self) -> str:
        """Return a line; `asdict` has all."""
        return f"<Manifest: {self.headline()}>"

    def fill_fraction(self, split: SplitRecord) -> float:
        """Return runtime tokens used / capacity of the split, 0-1; alignment padding does not count as used."""
        capacity = split.statistics.num_packs * self.packed_sequence_size
        return split.statistics.num_tokens / capacity if capacity else 0.0


#: A tokenizer's name does not change rows; the contents of its files do.
TOKENIZER_NAMES = frozenset({"name_or_path", "revision"})
