"""Mutations of an artifact's rows: boundaries, tokens, lengths. The manifest's checksums fit them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.artifact_mutations import (
    IDS,
    MASK,
    STARTS,
    Row,
    breaks,
    breaks_file,
    breaks_rows,
    rewrite_all_rows,
    rewrite_rows,
    sequences_of,
)

EOS, PAD, VOCAB_SIZE = 2, 0, 400
PADDED_VOCAB_SIZE = 512


def _row(folder: Path, change: Callable[[Row], object]) -> None:
    """Change the second row of `SHARD`."""
    rewrite_rows(folder, lambda rows: change(rows[1]))


@breaks_rows("BP341")
def null_row(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: None}))


@breaks_rows("BP341")
def null_mask(folder: Path) -> None:
    _row(folder, lambda row: row.update({MASK: None}))


@breaks_rows("BP341")
def null_token(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(3, None))


@breaks_rows("BP341")
def null_start(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].__setitem__(-1, None))


@breaks_rows("BP328")
def empty_row(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: [], MASK: [], STARTS: []}))


@breaks_rows("BP328")
def empty_row_with_a_start(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: [], MASK: [], STARTS: [0]}))


@breaks_rows("BP306")
def row_of_one_token(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: [5], MASK: [0], STARTS: [0]}))


@breaks_rows("BP327")
def row_without_starts(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].clear())


@breaks_rows("BP304")
def starts_moved_to_begin_with_one(folder: Path) -> None:
    _row(folder, lambda row: row.update({STARTS: [start + 1 for start in row[STARTS]]}))


@breaks_rows("BP304")
def first_start_removed(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].pop(0))


@breaks_rows("BP305")
def final_boundary_appended(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].append(len(row[IDS])))


@breaks_rows("BP306")
def start_repeated(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].insert(1, row[STARTS][1]))


@breaks_rows("BP306")
def zero_repeated(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].insert(0, 0))


@breaks_rows("BP306")
def starts_decreasing(folder: Path) -> None:
    def change(row: Row) -> None:
        row[STARTS][1], row[STARTS][2] = row[STARTS][2], row[STARTS][1]

    _row(folder, change)


@breaks_rows("BP306")
def start_one_after_another(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].insert(1, 1))


@breaks_rows("BP306")
def start_at_the_last_token(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].append(len(row[IDS]) - 1))


@breaks_rows("BP307")
def start_beyond_the_row(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].append(len(row[IDS]) + 5))


@breaks_rows("BP307")
def negative_start(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].__setitem__(1, -row[STARTS][1]))


@breaks_rows("BP307")
def starts_counted_over_the_shard(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        before = len(rows[0][IDS])
        rows[1][STARTS][1:] = [before + start for start in rows[1][STARTS][1:]]

    rewrite_rows(folder, change)


@breaks_rows("BP331")
def starts_moved_by_one(folder: Path) -> None:
    _row(folder, lambda row: row.update({STARTS: [0, *(start + 1 for start in row[STARTS][1:])]}))


@breaks_rows("BP331")
def starts_in_runtime_tokens(folder: Path) -> None:
    _row(folder, lambda row: row.update({STARTS: [start - index for index, start in enumerate(row[STARTS])]}))


@breaks_rows("BP331")
def two_sequences_merged(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].pop(1))


@breaks("BP348", where="training num_sequences", base="plain")
def two_sequences_merged_without_alignment(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].pop(1))


@breaks_rows("BP331")
def sequence_cut_in_two(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].insert(1, row[STARTS][1] // 2))


@breaks("BP348", where="training num_sequences", base="plain")
def sequence_cut_in_two_without_alignment(folder: Path) -> None:
    _row(folder, lambda row: row[STARTS].insert(1, row[STARTS][1] // 2))


@breaks_rows("BP303")
def mask_one_short(folder: Path) -> None:
    _row(folder, lambda row: row[MASK].pop())


@breaks_rows("BP303")
def mask_one_long(folder: Path) -> None:
    _row(folder, lambda row: row[MASK].append(0))


@breaks_rows("BP303")
def mask_empty(folder: Path) -> None:
    _row(folder, lambda row: row[MASK].clear())


@breaks_rows("BP303")
def mask_in_runtime_tokens(folder: Path) -> None:
    def change(row: Row) -> None:
        row[MASK] = [value for begin, end in sequences_of(row) for value in row[MASK][begin : end - 1]]

    _row(folder, change)


@breaks_rows("BP303")
def token_removed(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].pop())


@breaks_rows("BP311")
def token_out_of_vocabulary(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(1, VOCAB_SIZE))


@breaks_rows("BP311")
def last_token_out_of_vocabulary(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(-1, 2**31 - 1))


@breaks_rows("BP311")
def negative_token(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(1, -100))


@breaks_rows("BP312", given={"padded_vocab_size": PADDED_VOCAB_SIZE})
def token_in_vocabulary_padding(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(1, PADDED_VOCAB_SIZE - 1))


@breaks_rows("BP311", given={"padded_vocab_size": PADDED_VOCAB_SIZE})
def token_beyond_vocabulary_padding(folder: Path) -> None:
    _row(folder, lambda row: row[IDS].__setitem__(1, PADDED_VOCAB_SIZE))


@breaks_rows("BP504")
def row_of_eos_only(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: [EOS] * len(row[IDS])}))


@breaks_rows("BP336", where="training")
def eos_replaced_everywhere(folder: Path) -> None:
    rewrite_all_rows(folder, lambda row: row.update({IDS: [PAD if token == EOS else token for token in row[IDS]]}))


@breaks_file("BP343")
def token_changed(folder: Path) -> None:
    _without_record(folder, lambda rows: rows[1][IDS].__setitem__(1, 7))


@breaks_file("BP343")
def rows_in_another_order(folder: Path) -> None:
    _without_record(folder, lambda rows: rows.reverse())


@breaks_file("BP343")
def sequences_in_another_order(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        pieces = list(reversed(sequences_of(rows[1])))
        for name in (IDS, MASK):
            rows[1][name] = [value for begin, end in pieces for value in rows[1][name][begin:end]]
        lengths = [end - begin for begin, end in pieces]
        rows[1][STARTS] = [sum(lengths[:index]) for index in range(len(lengths))]

    _without_record(folder, change)


@breaks_rows("BP308", "BP331", where="training")
def stored_lengths_aligned(folder: Path) -> None:
    rewrite_all_rows(folder, lambda row: _replace_sequences(row, lambda ids, mask: (ids[:-1], mask[:-1])))


@breaks_rows("BP331")
def token_appended(folder: Path) -> None:
    def change(row: Row) -> None:
        row[IDS].append(EOS)
        row[MASK].append(0)

    _row(folder, change)


@breaks_rows("BP334", where="training")
def padding_with_another_token(folder: Path) -> None:
    def change(ids: list[int], mask: list[int]) -> tuple[list[int], list[int]]:
        num_padding = next(count for count, token in enumerate(reversed(ids)) if token != EOS)
        return ids[: len(ids) - num_padding] + [PAD] * num_padding, mask

    rewrite_all_rows(folder, lambda row: _replace_sequences(row, change))


@breaks_rows("BP330")
def two_rows_joined(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        row, other = rows[1], rows.pop(2)
        row[STARTS] += [len(row[IDS]) + start for start in other[STARTS]]
        row[IDS] += other[IDS]
        row[MASK] += other[MASK]

    rewrite_rows(folder, change)


@breaks_rows("BP322", "BP330")
def a_thousand_sequences_in_a_row(folder: Path) -> None:
    _row(folder, lambda row: row.update({IDS: [7, EOS] * 1025, MASK: [1, 0] * 1025, STARTS: [*range(0, 2050, 2)]}))


def _without_record(folder: Path, change: Callable[[list[Row]], object]) -> None:
    """Change the rows of `SHARD` and leave the manifest as it is."""
    manifest = (folder / "manifest.json").read_text()
    rewrite_rows(folder, change)
    (folder / "manifest.json").write_text(manifest)


def _replace_sequences(row: Row, change: Callable[[list[int], list[int]], tuple[list[int], list[int]]]) -> None:
    """Put changed sequences in place of a row's."""
    pieces = [change(row[IDS][begin:end], row[MASK][begin:end]) for begin, end in sequences_of(row)]
    row.update({IDS: [], MASK: [], STARTS: []})
    for ids, mask in pieces:
        row[STARTS].append(len(row[IDS]))
        row[IDS] += ids
        row[MASK] += mask
