"""Mutations of an artifact's rows: columns, boundaries, tokens, masks. The manifest's checksums fit most of them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.artifact_mutations import (
    IDS,
    MANIFEST,
    MASK,
    STARTS,
    Mutation,
    Row,
    breaks_file,
    breaks_rows,
    rewrite_all_rows,
    rewrite_rows,
    rewrite_table,
    sequences_of,
)
from tests.support.packed_rows import SCHEMA

EOS, PAD, VOCAB_SIZE = 2, 0, 400
PADDED_VOCAB_SIZE = 512
PADDED = {"padded_vocab_size": PADDED_VOCAB_SIZE}
_FLOAT_MASK = SCHEMA.set(1, pa.field(MASK, pa.list_(pa.float32())))

type Mask = Sequence[float]
type ChangeSequence = Callable[[list[int], list[int]], tuple[list[int], list[Any]]]
type ChangeMask = Callable[[list[int], Mask], Mask]


def _table(code: str, change: Callable[[Any], Any], **fields: Any) -> Mutation:
    """Return a mutation of `SHARD` as an Arrow table."""
    return breaks_rows(code, lambda folder: rewrite_table(folder, change, **fields))


def _column(code: str, name: str, element: Any, convert: Callable[[Any], Any]) -> Mutation:
    """Return a mutation that stores a column of `SHARD` as lists of another type."""

    def change(table: Any) -> Any:
        rows = [[convert(value) for value in row] for row in table.column(name).to_pylist()]
        position = table.schema.get_field_index(name)
        return table.set_column(position, name, pa.array(rows, type=pa.list_(element)))

    return _table(code, change)


def _rows(codes: str, change: Callable[[list[Row]], object], *, schema: Any = SCHEMA, **fields: Any) -> Mutation:
    return breaks_rows(codes, lambda folder: rewrite_rows(folder, change, schema=schema), **fields)


def _row(codes: str, change: Callable[[Row], object], **fields: Any) -> Mutation:
    """Return a mutation of the second row of `SHARD`."""
    return _rows(codes, lambda rows: change(rows[1]), **fields)


def _every_row(codes: str, change: Callable[[Row], object], **fields: Any) -> Mutation:
    """Return a mutation of all training rows."""
    return breaks_rows(codes, lambda folder: rewrite_all_rows(folder, change), where="training", **fields)


def _starts(codes: str, change: Callable[[list[int]], list[int]], **fields: Any) -> Mutation:
    return _row(codes, lambda row: row.update({STARTS: change(row[STARTS])}), **fields)


def _put(name: str, place: int, value: Any) -> Callable[[Row], object]:
    return lambda row: row[name].__setitem__(place, value)


def _unrecorded(change: Callable[[list[Row]], object]) -> Mutation:
    """Return a mutation of the rows of `SHARD` that leaves the manifest as it is."""

    def apply(folder: Path) -> None:
        manifest = (folder / MANIFEST).read_text()
        rewrite_rows(folder, change)
        (folder / MANIFEST).write_text(manifest)

    return breaks_file("BP343", apply)


def _replace_sequences(row: Row, change: ChangeSequence) -> None:
    """Put changed sequences in place of a row's."""
    pieces = [change(row[IDS][begin:end], row[MASK][begin:end]) for begin, end in sequences_of(row)]
    row.update({IDS: [], MASK: [], STARTS: []})
    for ids, mask in pieces:
        row[STARTS].append(len(row[IDS]))
        row[IDS] += ids
        row[MASK] += mask


def _every_sequence(codes: str, change: ChangeSequence) -> Mutation:
    return _every_row(codes, lambda row: _replace_sequences(row, change))


def _masks(change: ChangeMask) -> Callable[[Row], object]:
    """Return what changes the mask of each sequence of a row; `change` takes its tokens and its mask."""
    return lambda row: _replace_sequences(row, lambda ids, mask: (ids, list(change(ids, mask))))


def _mask(codes: str, change: ChangeMask, **fields: Any) -> Mutation:
    return _row(codes, _masks(change), **fields)


def _every_mask(codes: str, change: ChangeMask, **fields: Any) -> Mutation:
    return _every_row(codes, _masks(change), **fields)


def _as_bytes(table: Any) -> Any:
    rows = [b"".join(token.to_bytes(4, "little") for token in row) for row in table.column(IDS).to_pylist()]
    return table.set_column(0, IDS, pa.array(rows, type=pa.binary()))


def _reverse_sequences(rows: list[Row]) -> None:
    pieces = list(reversed(sequences_of(rows[1])))
    for name in (IDS, MASK):
        rows[1][name] = [value for begin, end in pieces for value in rows[1][name][begin:end]]
    lengths = [end - begin for begin, end in pieces]
    rows[1][STARTS] = [sum(lengths[:index]) for index in range(len(lengths))]


def _pad_with_another_token(ids: list[int], mask: list[int]) -> tuple[list[int], list[int]]:
    num_padding = next(count for count, token in enumerate(reversed(ids)) if token != EOS)
    return ids[: len(ids) - num_padding] + [PAD] * num_padding, mask


def _join_two(rows: list[Row]) -> None:
    row, other = rows[1], rows.pop(2)
    row[STARTS] += [len(row[IDS]) + start for start in other[STARTS]]
    row[IDS] += other[IDS]
    row[MASK] += other[MASK]


def _count_over_the_shard(rows: list[Row]) -> None:
    rows[1][STARTS][1:] = [len(rows[0][IDS]) + start for start in rows[1][STARTS][1:]]


def _swap_masks(rows: list[Row]) -> None:
    other = next(row for row in rows if len(row[MASK]) != len(rows[1][MASK]))
    rows[1][MASK], other[MASK] = other[MASK], rows[1][MASK]


def _cut_the_first(row: Row) -> None:
    row[STARTS].insert(1, row[STARTS][1] // 2)


def _mask_the_first(row: Row) -> None:
    _, end = sequences_of(row)[0]
    row[MASK][:end] = [0] * end


def _train_padding(ids: list[int], mask: Mask) -> Mask:
    is_padding = [int(token == following == EOS) for token, following in pairwise(ids)]
    return [max(value, pads) for value, pads in zip(mask, [*is_padding, 0], strict=True)]


input_ids_missing = _table("BP301", lambda table: table.drop_columns([IDS]))
loss_mask_missing = _table("BP301", lambda table: table.drop_columns([MASK]))
seq_start_id_missing = _table("BP301", lambda table: table.drop_columns([STARTS]))
column_renamed = _table("BP301", lambda table: table.rename_columns([IDS, "label_mask", STARTS]))
column_in_upper_case = _table("BP301", lambda table: table.rename_columns([IDS.upper(), MASK, STARTS]))
column_twice = _table("BP341", lambda table: table.append_column(IDS, table.column(IDS)))
table_without_columns = _table("BP301", lambda table: pa.table({"row": range(table.num_rows)}))
tokens_as_text = _column("BP325", IDS, pa.string(), str)
tokens_as_float = _column("BP325", IDS, pa.float32(), float)
tokens_as_lists_of_lists = _column("BP325", IDS, pa.list_(pa.int32()), lambda token: [token])
tokens_as_bytes = _table("BP325", _as_bytes)
tokens_as_one_number = _table("BP325", lambda table: table.set_column(0, IDS, pa.array(range(table.num_rows))))
tokens_of_the_null_type = _column("BP325", IDS, pa.null(), lambda token: None)
starts_as_text = _column("BP325", STARTS, pa.string(), str)
mask_as_text = _column("BP325", MASK, pa.string(), str)
mask_as_float = _column("BP326", MASK, pa.float32(), float)
mask_as_double = _column("BP326", MASK, pa.float64(), float)
one_giant_row_group = _table("BP316", lambda table: pa.concat_tables([table] * 80), row_group_size=1 << 20)
negative_tokens_as_unsigned = _column("BP311", IDS, pa.uint32(), lambda token: 2**32 - 100 if token == EOS else token)

null_row = _row("BP341", lambda row: row.update({IDS: None}))
null_mask = _row("BP341", lambda row: row.update({MASK: None}))
null_token = _row("BP341", _put(IDS, 3, None))
null_start = _row("BP341", _put(STARTS, -1, None))
empty_row = _row("BP328", lambda row: row.update({IDS: [], MASK: [], STARTS: []}))
empty_row_with_a_start = _row("BP328", lambda row: row.update({IDS: [], MASK: [], STARTS: [0]}))
row_of_one_token = _row("BP306", lambda row: row.update({IDS: [5], MASK: [0], STARTS: [0]}))
row_without_starts = _row("BP327", lambda row: row[STARTS].clear())
starts_moved_to_begin_with_one = _starts("BP304", lambda starts: [start + 1 for start in starts])
first_start_removed = _row("BP304", lambda row: row[STARTS].pop(0))
final_boundary_appended = _row("BP305", lambda row: row[STARTS].append(len(row[IDS])))
start_repeated = _row("BP306", lambda row: row[STARTS].insert(1, row[STARTS][1]))
zero_repeated = _row("BP306", lambda row: row[STARTS].insert(0, 0))
starts_decreasing = _row("BP306", lambda row: row[STARTS].insert(1, row[STARTS].pop(2)))
start_one_after_another = _row("BP306", lambda row: row[STARTS].insert(1, 1))
start_at_the_last_token = _row("BP306", lambda row: row[STARTS].append(len(row[IDS]) - 1))
start_beyond_the_row = _row("BP307", lambda row: row[STARTS].append(len(row[IDS]) + 5))
negative_start = _row("BP307", lambda row: row[STARTS].__setitem__(1, -row[STARTS][1]))
starts_counted_over_the_shard = _rows("BP307", _count_over_the_shard)
starts_moved_by_one = _starts("BP331", lambda starts: [0, *(start + 1 for start in starts[1:])])
starts_in_runtime_tokens = _starts("BP331", lambda starts: [start - index for index, start in enumerate(starts)])
_UNALIGNED: dict[str, Any] = {"where": "training num_sequences", "base": "plain", "needs_manifest": True}
two_sequences_merged = _row("BP331", lambda row: row[STARTS].pop(1))
two_sequences_merged_without_alignment = _row("BP348", lambda row: row[STARTS].pop(1), **_UNALIGNED)
sequence_cut_in_two = _row("BP331", _cut_the_first)
sequence_cut_in_two_without_alignment = _row("BP348", _cut_the_first, **_UNALIGNED)
mask_one_short = _row("BP303", lambda row: row[MASK].pop())
mask_one_long = _row("BP303", lambda row: row[MASK].append(0))
mask_empty = _row("BP303", lambda row: row[MASK].clear())
mask_in_runtime_tokens = _mask("BP303", lambda ids, mask: mask[:-1])
token_removed = _row("BP303", lambda row: row[IDS].pop())
token_out_of_vocabulary = _row("BP311", _put(IDS, 1, VOCAB_SIZE))
last_token_out_of_vocabulary = _row("BP311", _put(IDS, -1, 2**31 - 1))
negative_token = _row("BP311", _put(IDS, 1, -100))
token_in_vocabulary_padding = _row("BP312", _put(IDS, 1, PADDED_VOCAB_SIZE - 1), given=PADDED)
token_beyond_vocabulary_padding = _row("BP311", _put(IDS, 1, PADDED_VOCAB_SIZE), given=PADDED)
row_of_eos_only = _row("BP504", lambda row: row.update({IDS: [EOS] * len(row[IDS])}))
eos_replaced = _every_row(
    "BP336", lambda row: row.update({IDS: [token if token != EOS else PAD for token in row[IDS]]})
)
token_changed = _unrecorded(lambda rows: rows[1][IDS].__setitem__(1, 7))
rows_in_another_order = _unrecorded(lambda rows: rows.reverse())
sequences_in_another_order = _unrecorded(_reverse_sequences)
stored_lengths_aligned = _every_sequence("BP308 BP331", lambda ids, mask: (ids[:-1], mask[:-1]))
token_appended = _row("BP331", lambda row: (row[IDS].append(EOS), row[MASK].append(0)))
padding_with_another_token = _every_sequence("BP334", _pad_with_another_token)
two_rows_joined = _rows("BP330", _join_two)
a_thousand_sequences_in_a_row = _row(
    "BP322 BP330", lambda row: row.update({IDS: [7, EOS] * 1025, MASK: [1, 0] * 1025, STARTS: [*range(0, 2050, 2)]})
)

masks_not_rolled = _every_mask("BP332", lambda ids, mask: [0, *mask[:-1]])
labels_after_eos_trained = _every_mask(
    "BP337",
    lambda ids, mask: [*(1 if token == EOS else mask[place] for place, token in enumerate(ids[:-1])), 0],
    needs_manifest=True,
)
masks_not_rolled_and_without_the_last_newline = _every_mask("BP332", lambda ids, mask: [0, *mask[:-2], 0], base="plain")
masks_rolled_too_often = _every_mask("BP336", lambda ids, mask: [*mask[2:], 0, 0])
mask_of_ones = _mask("BP309", lambda ids, mask: [1] * len(mask))
masks_that_train_everything = _every_mask("BP333", lambda ids, mask: [1] * (len(mask) - 1) + [0])
mask_of_zeros = _mask("BP318", lambda ids, mask: [0] * len(mask))
masks_of_zeros = _every_mask("BP318", lambda ids, mask: [0] * len(mask))
sequence_with_a_mask_of_zeros = _row("BP319", _mask_the_first)
mask_that_trains_only_what_follows_eos = _mask("BP318", lambda ids, mask: [*(int(id == EOS) for id in ids[:-1]), 0])
last_mask_element_one = _row("BP309", _put(MASK, -1, 1))
mask_inverted = _mask("BP309", lambda ids, mask: [1 - value for value in mask])
fractional_mask = _mask("BP310 BP326", lambda ids, mask: [0.5 * value for value in mask], schema=_FLOAT_MASK)
mask_that_is_no_number = _row("BP310 BP326", _put(MASK, 0, float("nan")), schema=_FLOAT_MASK)
mask_of_twos = _mask("BP310", lambda ids, mask: [2 * value for value in mask])
negative_mask = _mask("BP310", lambda ids, mask: [-value for value in mask])
ignored_labels_in_place_of_a_mask = _mask("BP310", lambda ids, mask: [1 if value else -100 for value in mask])
labels_in_place_of_a_mask = _mask("BP310", lambda ids, mask: [token % 128 for token in ids])
masks_of_two_rows_swapped = _rows("BP303", _swap_masks)
padding_trained = _rows("BP335", lambda rows: [_masks(_train_padding)(row) for row in rows])
end_of_turn_not_trained = _every_mask(
    "BP336", lambda ids, mask: [*(0 if label == EOS else mask[index] for index, label in enumerate(ids[1:])), 0]
)
