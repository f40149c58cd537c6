"""Makes one split from its ranges: plan, shards, provenance and statistics."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.artifact.plan import FIRST_TOKEN
from bridgepack.data.files import replaced_when_whole
from bridgepack.data.sequences.over_long import HistoryCut, SequencePolicy
from bridgepack.data.shards.row_groups import arrow_array
from bridgepack.data.shards.write import ShardPlan, shard_name
from bridgepack.data.stages.finish import SEQUENCE, RangeResult, Sequences
from bridgepack.data.stages.notes import Drops, Losses, join_notes
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray, aligned_runtime_lengths
from bridgepack.records import VALIDATION, DropReason, InputRecord, PackPlan, SourceRecord, SplitStatistics, UnreadField
from bridgepack.records.sequences import summed_counts

#: Stored tokens per shard. The host keeps every shard open in every loader process, so there should be few.
_SHARD_TOKENS = 1 << 25
_MAX_SHARDS = 64
_SMALLEST_BUCKET = 32
#: Lines per row group of the provenance; bounds memory.
_PROVENANCE_ROWS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TokenizedSplit:
    """The sequences of one split."""

    name: str
    inputs: tuple[InputRecord, ...]
    token_files: tuple[Path, ...]  #: files with its sequences; may hold others, too
    file_indices: IntArray  #: shape [num_token_files], int64: index into `inputs`
    first_rows: IntArray  #: shape [num_token_files], int64: 1-based row of that input at row offset 0
    sequences: Sequences  #: in input order; `store_file` is an index into `token_files`
    splits_rows: bool  #: the recipe may make several sequences of a row
    num_split: int  #: rows that were split
    num_pieces: int  #: sequences that are pieces of these rows, repetitions left out
    num_untrained_pieces: int  #: untrained pieces of these rows, left out
    num_partly_packed: int  #: rows of which a piece was dropped, among them
    num_rows_in: int
    num_rows_of_files: IntArray  #: shape [num_inputs], int64: the split's rows in each input
    num_blank_lines: int
    drops: Drops
    dropped_pieces: Drops  #: of pieces whose rows are packed in part
    losses: Losses  #: of sequences whose text lacks content of the row
    cut: HistoryCut  #: exchanges and turns that were left out of its rows
    num_repeated: int = 0  #: repetitions of sequences
    sources: tuple[SourceRecord, ...] = ()  #: its rows and tokens per source
    unread: tuple[UnreadField, ...] = ()  #: what nobody reads

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    @property
    def sources_of_sequences(self) -> IntArray:
        """Index of each sequence's source in `sources`; shape [num_sequences], int64."""
        of_inputs = np.array([record.source for record in self.inputs], dtype=np.int64)
        sources: IntArray = of_inputs[self.file_indices[self.sequences["store_file"]]]
        return sources

    def runtime_lengths(self, multiple: int) -> IntArray:
        """Return runtime lengths, padded to `multiple`; shape [num_sequences], int64."""
        return aligned_runtime_lengths(self.sequences["stored_length"].astype(np.int64) - 1, multiple)


def with_pack_counts(split: TokenizedSplit, plan: PackPlan) -> tuple[SourceRecord, ...]:
    """Return the split's sources with their packs, of a plan whose packs hold one source each."""
    firsts = plan.sequence_order[plan.pack_offsets[:-1]]
    counts = np.bincount(split.sources_of_sequences[firsts], minlength=len(split.sources)).tolist()
    return tuple(replace(source, num_packs=count) for source, count in zip(split.sources, counts, strict=True))


def begins_row(split: TokenizedSplit) -> npt.NDArray[np.bool_]:
    """Return whether each sequence is the first of its row, not another piece; shape [num_sequences], bool."""
    changes = [np.diff(values, prepend=-1) != 0 for values in (split.file_indices, split.first_rows)]
    ranges = np.cumsum(changes[0] | changes[1], dtype=np.int32)[split.sequences["store_file"]]
    is_first = np.ones(split.num_sequences, dtype=np.bool_)
    is_first[1:] = ranges[1:] != ranges[:-1]
    rows = split.sequences["row_offset"]
    is_first[1:] |= rows[1:] != rows[:-1]
    return is_first


def with_piece_counts(
    split: TokenizedSplit, firsts: IntArray, is_packed: npt.NDArray[np.bool_] | None = None
) -> TokenizedSplit:
    """Return a split with the counts of its pieces.

    `firsts` are the rows' first sequences, none repeated; `is_packed`, shape [num_rows], tells which rows are packed:
    all of them if it is None.
    """
    if is_packed is not None and is_packed.all():
        is_packed = None
    num_pieces = split.sequences["num_pieces"][firsts]
    rows = np.flatnonzero(num_pieces if is_packed is None else (num_pieces > 0) & is_packed)
    stops = np.append(firsts[1:], split.num_sequences) if len(rows) else firsts
    num_packed = stops[rows] - firsts[rows]
    left_out = split.sequences["num_left_out"][slice(None) if is_packed is None else firsts[is_packed]]
    return replace(
        split,
        num_split=len(rows),
        num_pieces=int(num_packed.sum()),
        num_partly_packed=int((num_packed < num_pieces[rows]).sum()),
        num_untrained_pieces=int(left_out.sum(dtype=np.int64)),
    )


def gather_split(
    name: str, inputs: Sequence[InputRecord], results: Sequence[RangeResult], *, splits_rows: bool
) -> TokenizedSplit:
    """Return a split's sequences from the results of its files' ranges, in order.

    Raises:
        DataError: it has no sequences; says why its rows were dropped.
    """
    parts = [result.parts[name] for result in results]
    token_files: list[Path] = []
    places: list[tuple[int, int]] = []
    sequences = np.concatenate([np.empty(0, SEQUENCE), *(part.sequences for part in parts)])
    stops = np.cumsum([len(part.sequences) for part in parts])
    for result, range_sequences in zip(results, np.split(sequences, stops), strict=False):
        range_sequences["store_file"] = len(token_files) + range_sequences["is_cut"]
        files = [path for path in (result.place.token_file, result.cut_file) if path is not None]
        token_files += files
        places += [(result.place.file_index, result.place.first_row)] * len(files)
    is_aside = name == VALIDATION and any(len(result.parts) > 1 for result in results)
    files_of_parts = [result.place.file_index for result in results]
    split = TokenizedSplit(
        name=name,
        inputs=_counted_inputs(name, inputs, results),
        token_files=tuple(token_files),
        file_indices=np.array([file for file, _ in places], dtype=np.int64),
        first_rows=np.array([row for _, row in places], dtype=np.int64),
        sequences=sequences,
        splits_rows=splits_rows,
        num_split=0,
        num_pieces=0,
        num_partly_packed=0,
        num_untrained_pieces=0,
        num_rows_in=sum(part.num_rows for part in parts),
        num_rows_of_files=np.bincount(files_of_parts, [part.num_rows for part in parts], len(inputs)).astype(np.int64),
        num_blank_lines=0 if is_aside else sum(result.num_blank_lines for result in results),
        drops=join_notes([part.drops for part in parts], "reason"),
        dropped_pieces=join_notes([part.dropped_pieces for part in parts], "reason"),
        losses=join_notes([part.losses for part in parts], "kind"),
        cut=HistoryCut.total(part.cut for part in parts),
        unread=() if is_aside else unread_fields([record.source for record in inputs], results),
    )
    firsts = np.flatnonzero(begins_row(split))
    assert split.num_rows_in == len(firsts) + sum(split.drops.counts.values()), "the ledger must balance"
    if not len(sequences):
        raise DataError(_why_empty(split))
    return with_piece_counts(split, firsts)


def unread_fields(sources: Sequence[int], results: Sequence[RangeResult]) -> tuple[UnreadField, ...]:
    """Return what nobody reads, each name and what it holds once for each source; `sources` are those of the files."""
    num_rows_read: Counter[int] = Counter()
    fields: dict[tuple[int, str, str], UnreadField] = {}
    for result in results:
        source = sources[result.place.file_index]
        num_rows_read[source] += result.num_rows
        for name, holds, num_rows, row_offset, example in result.unread:
            first = UnreadField(
                source=source,
                name=name,
                holds=holds,
                num_rows=0,
                num_rows_read=0,
                file_index=result.place.file_index,
                row=result.place.first_row + row_offset,
                example=example,
            )
            field_so_far = fields.get((source, name, holds), first)
            fields[source, name, holds] = replace(field_so_far, num_rows=field_so_far.num_rows + num_rows)
    return tuple(replace(field, num_rows_read=num_rows_read[field.source]) for _, field in sorted(fields.items()))


def _counted_inputs(
    split: str, inputs: Sequence[InputRecord], results: Sequence[RangeResult]
) -> tuple[InputRecord, ...]:
    """Return the inputs with their numbers of rows, by layout, and of duplicates in the split."""
    totals = np.zeros((len(inputs), 2), dtype=np.int64)
    parts: list[list[tuple[int, ...]]] = [[] for _ in inputs]
    for result in results:
        num_duplicates = result.parts[split].drops.counts.get(DropReason.DUPLICATE, 0)
        totals[result.place.file_index] += result.num_rows, num_duplicates
        parts[result.place.file_index].append(result.num_read)
    return tuple(
        replace(
            record,
            num_rows=num_rows,
            num_duplicates=num_duplicates,
            read_as=dict(zip(record.read_as, (*summed_counts(counts), *[0] * len(record.read_as)), strict=False)),
        )
        for record, (num_rows, num_duplicates), counts in zip(inputs, totals.tolist(), parts, strict=True)
    )


def shard_plans(
    split: TokenizedSplit, plan: PackPlan, *, folder: Path, multiple: int, policy: SequencePolicy
) -> Iterator[ShardPlan]:
    """Yield the plan of each shard; their number depends only on the data."""
    num_tokens = int(split.sequences["stored_length"].sum(dtype=np.int64))
    num_shards = min(max(-(-num_tokens // _SHARD_TOKENS), 1), _MAX_SHARDS, plan.num_packs)
    cuts = np.linspace(0, plan.num_packs, num_shards + 1).astype(np.int64)
    for index in range(num_shards):
        first, stop = int(cuts[index]), int(cuts[index + 1])
        offsets = plan.pack_offsets[first : stop + 1]
        members = plan.sequence_order[offsets[0] : offsets[-1]]
        name = f"{split.name}/{shard_name(index, num_shards)}"
        yield ShardPlan(
            path=folder / name,
            name=name,
            pack_offsets=offsets - offsets[0],
            store_files=split.sequences["store_file"][members],
            store_indices=split.sequences["index"][members],
            stored_lengths=split.sequences["stored_length"][members],
            pad_seq_to_mult=multiple,
            pad_token_id=policy.eos_token_id,
            packed_sequence_size=plan.packed_sequence_size,
            masks_after_eos=policy.masks_after_eos,
        )


def write_provenance(path: Path, split: TokenizedSplit, plan: PackPlan) -> None:
    """Write which input row became which sequence of which pack: one line per sequence, in pack order."""
    schema = _provenance(split, plan, 0, 0).schema
    with (
        replaced_when_whole(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", store_schema=False) as writer,
    ):
        for first in range(0, len(plan.sequence_order), _PROVENANCE_ROWS):
            table = _provenance(split, plan, first, first + _PROVENANCE_ROWS)
            writer.write_table(table, row_group_size=_PROVENANCE_ROWS)


def _provenance(split: TokenizedSplit, plan: PackPlan, first: int, stop: int) -> pa.Table:
    members = plan.sequence_order[first:stop]
    places = np.arange(first, first + len(members))
    packs = np.searchsorted(plan.pack_offsets, places, side="right") - 1
    places -= plan.pack_offsets[packs]
    files = split.sequences["store_file"][members]
    columns: dict[str, npt.NDArray[Any]] = {
        "pack": packs,
        "position": places.astype(np.int32),
        "file_index": split.file_indices.astype(np.int32)[files],
        "row": split.first_rows[files],
        "runtime_length": split.sequences["stored_length"][members] - np.int32(1),
        "is_truncated": split.sequences["is_truncated"][members],
    }
    del places
    columns["row"] += split.sequences["row_offset"][members]
    if split.splits_rows:
        columns[FIRST_TOKEN] = split.sequences["first_token"][members]
    return pa.table({name: arrow_array(values) for name, values in columns.items()})


def split_statistics(split: TokenizedSplit, plan: PackPlan, multiple: int) -> SplitStatistics:
    """Return the statistics of a split."""
    logical = split.sequences["stored_length"] - np.int32(1)
    physical = aligned_runtime_lengths(logical, multiple)
    pack_tokens = np.add.reduceat(physical[plan.sequence_order], plan.pack_offsets[:-1], dtype=np.int64)
    num_tokens = int(logical.sum(dtype=np.int64))
    return SplitStatistics(
        num_rows_in=split.num_rows_in,
        num_blank_lines=split.num_blank_lines,
        num_sequences=len(logical),
        num_truncated=int(split.sequences["is_truncated"].sum()),
        num_packs=plan.num_packs,
        num_tokens=num_tokens,
        num_alignment_tokens=int(physical.sum(dtype=np.int64)) - num_tokens,
        num_trained_tokens=int(split.sequences["num_trained"].sum(dtype=np.int64)),
        max_runtime_length=int(physical.max()),
        max_sequences_per_pack=int(np.diff(plan.pack_offsets).max()),
        min_pack_tokens=int(pack_tokens.min()),
        length_histogram=_histogram(logical),
        num_repeated=split.num_repeated,
        num_split=split.num_split,
        num_pieces=split.num_pieces,
        num_untrained_pieces=split.num_untrained_pieces,
        num_partly_packed=split.num_partly_packed,
        num_added_tokens=int(logical[split.sequences["is_added"]].sum(dtype=np.int64)),
        num_cut_exchanges=split.cut.num_exchanges,
        num_cut_turns=split.cut.num_turns,
    )


def _histogram(lengths: npt.NDArray[Any]) -> tuple[tuple[int, int], ...]:
    """Return (upper bound, count) of buckets that double in size: [20, 40, 50] -> ((32, 1), (64, 2))."""
    bounds = [_SMALLEST_BUCKET]
    while bounds[-1] < int(lengths.max()):
        bounds.append(2 * bounds[-1])
    counts = np.bincount(np.searchsorted(bounds, lengths), minlength=len(bounds))
    return tuple((bound, int(count)) for bound, count in zip(bounds, counts, strict=True))


def _why_empty(split: TokenizedSplit) -> str:
    names = ", ".join(record.path for record in split.inputs[:3])
    if split.num_rows_in == 0:
        change = "raise" if split.name == VALIDATION else "lower"
        return f"the {split.name} split has no rows ({names}). Check the files, or {change} data.validation_fraction."
    reasons = ", ".join(f"{reason} {count}" for reason, count in split.drops.counts.items())
    first = split.drops.examples[0]
    return (
        f"the {split.name} split has no sequences left: all {split.num_rows_in} rows were dropped ({reasons}). "
        f"The first: {split.inputs[first.file_index].path} row {first.row}: {first.detail}. Correct the data or the "
        "recipe's preprocessing."
    )
