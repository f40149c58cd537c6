"""One split from its tokenised ranges: plan, shards, provenance, statistics and the ledger of drops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.config.recipe import ResolvedRecipe
from bridgepack.data.assembly import ShardPlan
from bridgepack.data.files import replaced_when_whole
from bridgepack.data.packing import plan_packs
from bridgepack.data.shards import shard_name
from bridgepack.data.stages import RangeResult, WriteTask
from bridgepack.data.token_store import read_store_index
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray, aligned_runtime_lengths
from bridgepack.records import VALIDATION, Drop, InputRecord, PackPlan, SplitStatistics

#: Stored tokens of a shard. The host keeps every shard open in every loader process, so there are never many.
_SHARD_TOKENS = 1 << 25
_MAX_SHARDS = 64
_EXAMPLES_PER_REASON = 5
_SMALLEST_BUCKET = 32
_INDEX_FIELDS = ("stored_lengths", "num_trained", "file_indices", "rows", "is_truncated")
_ARRAY_FIELDS = ("store_files", "store_indices", *_INDEX_FIELDS)


@dataclass(frozen=True, kw_only=True)
class TokenizedSplit:
    """The sequences of one split, in input order; arrays have shape [num_sequences].

    Attributes:
        name: `training` or `validation`.
        inputs: its files.
        store_paths: store files that hold its sequences, maybe among others.
        store_files: position in `store_paths`.
        store_indices: position inside that file.
        stored_lengths: stored tokens, before alignment.
        num_trained: trained labels.
        file_indices: position in `inputs`.
        rows: 1-based row of that file.
        is_truncated: bool.
        num_rows_in: rows read.
        num_blank_lines: lines without anything on them.
        drops: in input order.
    """

    name: str
    inputs: tuple[InputRecord, ...]
    store_paths: tuple[Path, ...]
    store_files: IntArray
    store_indices: IntArray
    stored_lengths: IntArray
    num_trained: IntArray
    file_indices: IntArray
    rows: IntArray
    is_truncated: Any
    num_rows_in: int
    num_blank_lines: int
    drops: tuple[Drop, ...]


def gather_split(
    name: str,
    inputs: Sequence[InputRecord],
    results: Sequence[RangeResult],
    *,
    takes_all: bool,
) -> TokenizedSplit:
    """Return a split's sequences from the results of its ranges.

    Args:
        name: `training` or `validation`.
        inputs: its files.
        results: of all their ranges, in order.
        takes_all: every sequence belongs to this split; otherwise those whose validation mark fits its name.

    Raises:
        DataError: when it has no sequence, saying what became of its rows.
    """
    is_validation = name == VALIDATION
    columns = _columns_of(results, None if takes_all else is_validation)
    counts = [sum(result.num_rows) if takes_all else result.num_rows[is_validation] for result in results]
    rows_per_file: Counter[int] = Counter()
    for result in results:
        rows_per_file[result.file_index] += sum(result.num_rows)
    split = TokenizedSplit(
        name=name,
        inputs=tuple(replace(record, num_rows=rows_per_file[index]) for index, record in enumerate(inputs)),
        store_paths=tuple(result.store_path for result in results),
        **columns,
        num_rows_in=sum(counts),
        num_blank_lines=0 if is_validation and not takes_all else sum(result.num_blank_lines for result in results),
        drops=tuple(drop for result in results for aside, drop in result.drops if takes_all or aside == is_validation),
    )
    assert split.num_rows_in == len(split.rows) + len(split.drops), "the ledger must balance"
    if not len(split.rows):
        raise DataError(_why_empty(split))
    return split


def _columns_of(results: Sequence[RangeResult], is_validation: bool | None) -> dict[str, Any]:
    """Return the array fields of a TokenizedSplit; with a mark, only of sequences that have it."""
    parts: dict[str, list[Any]] = {name: [] for name in _ARRAY_FIELDS}
    for position, result in enumerate(results):
        index = read_store_index(result.store_path)
        is_wanted = True if is_validation is None else index.is_validation == is_validation
        chosen = np.flatnonzero(np.broadcast_to(is_wanted, len(index.rows)))
        parts["store_files"].append(np.full(len(chosen), position))
        parts["store_indices"].append(chosen)
        for name in _INDEX_FIELDS:
            parts[name].append(getattr(index, name)[chosen])
    kinds = {name: np.bool_ if name == "is_truncated" else np.int64 for name in _ARRAY_FIELDS}
    return {
        name: np.concatenate(arrays).astype(kinds[name]) if arrays else np.empty(0, dtype=kinds[name])
        for name, arrays in parts.items()
    }


def plan_split(split: TokenizedSplit, resolved: ResolvedRecipe) -> PackPlan:
    """Return the split's plan over physical runtime lengths."""
    packing = resolved.recipe.packing
    return plan_packs(
        aligned_runtime_lengths(split.stored_lengths - 1, resolved.pad_seq_to_mult.value),
        packed_sequence_size=packing.packed_sequence_size,
        algorithm=packing.algorithm,
        max_sequences_per_pack=packing.max_sequences_per_pack,
        seed=packing.seed,
    )


def write_tasks(
    split: TokenizedSplit, plan: PackPlan, resolved: ResolvedRecipe, folder: Path, eos_token_id: int
) -> Iterator[WriteTask]:
    """Yield a task for each shard; how many there are depends on the data alone."""
    num_tokens = int(split.stored_lengths.sum())
    num_shards = min(max(-(-num_tokens // _SHARD_TOKENS), 1), _MAX_SHARDS, plan.num_packs)
    cuts = np.linspace(0, plan.num_packs, num_shards + 1).astype(np.int64)
    for index in range(num_shards):
        first, stop = int(cuts[index]), int(cuts[index + 1])
        offsets = plan.pack_offsets[first : stop + 1]
        members = plan.sequence_order[offsets[0] : offsets[-1]]
        name = f"{split.name}/{shard_name(index, num_shards)}"
        shard = ShardPlan(
            path=folder / name,
            name=name,
            pack_offsets=offsets - offsets[0],
            store_files=split.store_files[members],
            store_indices=split.store_indices[members],
            stored_lengths=split.stored_lengths[members],
            pad_seq_to_mult=resolved.pad_seq_to_mult.value,
            pad_token_id=eos_token_id,
            packed_sequence_size=plan.packed_sequence_size,
        )
        yield WriteTask(plan=shard, store_paths=split.store_paths)


def write_provenance(path: Path, split: TokenizedSplit, plan: PackPlan) -> None:
    """Write which source row became which sequence of which pack: one line per sequence, in pack order."""
    order = plan.sequence_order
    sizes = np.diff(plan.pack_offsets)
    table = pa.table(
        {
            "pack": np.repeat(np.arange(plan.num_packs), sizes),
            "position": (np.arange(len(order)) - np.repeat(plan.pack_offsets[:-1], sizes)).astype(np.int32),
            "file_index": split.file_indices[order].astype(np.int32),
            "row": split.rows[order],
            "runtime_length": (split.stored_lengths[order] - 1).astype(np.int32),
            "is_truncated": split.is_truncated[order],
        }
    )
    with replaced_when_whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", store_schema=False)


def write_dropped_rows(path: Path, splits: Sequence[TokenizedSplit]) -> None:
    """Write the ledger: one JSON line per dropped row, in input order."""
    with replaced_when_whole(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for split in splits:
            for drop in split.drops:
                entry = {
                    "split": split.name,
                    "file": split.inputs[drop.file_index].path,
                    "row": drop.row,
                    "reason": drop.reason,
                    "detail": drop.detail,
                }
                stream.write(json.dumps(entry, ensure_ascii=False) + "\n")


def count_drops(drops: Sequence[Drop]) -> dict[str, int]:
    """Return the number of drops per reason, most frequent first."""
    return {str(reason): count for reason, count in Counter(drop.reason for drop in drops).most_common()}


def drop_examples(drops: Sequence[Drop]) -> tuple[Drop, ...]:
    """Return the first few drops of each reason, in input order."""
    seen: Counter[str] = Counter()
    examples = []
    for drop in drops:
        seen[drop.reason] += 1
        if seen[drop.reason] <= _EXAMPLES_PER_REASON:
            examples.append(drop)
    return tuple(examples)


def split_statistics(split: TokenizedSplit, plan: PackPlan, multiple: int) -> SplitStatistics:
    """Return what the split holds."""
    logical = split.stored_lengths - 1
    physical = aligned_runtime_lengths(logical, multiple)
    pack_tokens = np.add.reduceat(physical[plan.sequence_order], plan.pack_offsets[:-1])
    return SplitStatistics(
        num_rows_in=split.num_rows_in,
        num_blank_lines=split.num_blank_lines,
        num_sequences=len(logical),
        num_truncated=int(split.is_truncated.sum()),
        num_packs=plan.num_packs,
        num_tokens=int(logical.sum()),
        num_alignment_tokens=int((physical - logical).sum()),
        num_trained_tokens=int(split.num_trained.sum()),
        max_runtime_length=int(physical.max()),
        max_sequences_per_pack=int(np.diff(plan.pack_offsets).max()),
        min_pack_tokens=int(pack_tokens.min()),
        length_histogram=_histogram(logical),
    )


def _histogram(lengths: IntArray) -> tuple[tuple[int, int], ...]:
    """Return (upper bound, count) over buckets that double: [20, 40, 50] -> ((32, 1), (64, 2))."""
    bounds = [_SMALLEST_BUCKET]
    while bounds[-1] < int(lengths.max()):
        bounds.append(2 * bounds[-1])
    counts = np.bincount(np.searchsorted(bounds, lengths), minlength=len(bounds))
    return tuple((bound, int(count)) for bound, count in zip(bounds, counts, strict=True))


def _why_empty(split: TokenizedSplit) -> str:
    names = ", ".join(record.path for record in split.inputs[:3])
    if split.num_rows_in == 0:
        aside = "" if split.name != VALIDATION else " or raise data.validation_fraction"
        return f"the {split.name} split has no rows ({names}). Check the files{aside}."
    reasons = ", ".join(f"{reason} {count}" for reason, count in count_drops(split.drops).items())
    first = split.drops[0]
    return (
        f"the {split.name} split has no sequence left: all {split.num_rows_in} rows were dropped ({reasons}). "
        f"The first: {split.inputs[first.file_index].path} row {first.row}: {first.detail}. Correct the data or the "
        "recipe's preprocessing."
    )
