"""Mutations of an artifact's rows: boundaries, tokens, lengths. The manifest's checksums fit them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import (
    IDS,
    MASK,
    STARTS,
    Mutation,
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
PADDED = {"padded_vocab_size": PADDED_VOCAB_SIZE}


def _change_row(folder: Path, change: Callable[[Row], object]) -> None:
    """Change the second row of `SHARD`."""
    rewrite_rows(folder, lambda rows: change(rows[1]))


def _row(code: str, change: Callable[[Row], object], **fields: Any) -> Mutation:
    """Return a mutation of the second row of `SHARD`."""
    return breaks_rows(code, **fields)(lambda folder: _change_row(folder, change))


null_row = _row("BP341", lambda row: row.update({IDS: None}))
null_mask = _row("BP341", lambda row: row.update({MASK: None}))
null_token = _row("BP341", lambda row: row[IDS].__setitem__(3, None))
null_start = _row("BP341", lambda row: row[STARTS].__setitem__(-1, None))
empty_row = _row("BP328", lambda row: row.update({IDS: [], MASK: [], STARTS: []}))
empty_row_with_a_start = _row("BP328", lambda row: row.update({IDS: [], MASK: [], STARTS: [0]}))
row_of_one_token = _row("BP306", lambda row: row.update({IDS: [5], MASK: [0], STARTS: [0]}))
row_without_starts = _row("BP327", lambda row: row[STARTS].clear())
starts_moved_to_begin_with_one = _row("BP304", lambda row: row.update({STARTS: [start + 1 for start in row[STARTS]]}))
first_start_removed = _row("BP304", lambda row: row[STARTS].pop(0))
final_boundary_appended = _row("BP305", lambda row: row[STARTS].append(len(row[IDS])))
start_repeated = _row("BP306", lambda row: row[STARTS].insert(1, row[STARTS][1]))
zero_repeated = _row("BP306", lambda row: row[STARTS].insert(0, 0))


@breaks_rows("BP306")
def starts_decreasing(folder: Path) -> None:
    def change(row: Row) -> None:
        row[STARTS][1], row[STARTS][2] = row[STARTS][2], row[STARTS][1]

    _change_row(folder, change)


start_one_after_another = _row("BP306", lambda row: row[STARTS].insert(1, 1))
start_at_the_last_token = _row("BP306", lambda row: row[STARTS].append(len(row[IDS]) - 1))
start_beyond_the_row = _row("BP307", lambda row: row[STARTS].append(len(row[IDS]) + 5))
negative_start = _row("BP307", lambda row: row[STARTS].__setitem__(1, -row[STARTS][1]))


@breaks_rows("BP307")
def starts_counted_over_the_shard(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        before = len(rows[0][IDS])
        rows[1][STARTS][1:] = [before + start for start in rows[1][STARTS][1:]]

    rewrite_rows(folder, change)


starts_moved_by_one = _row("BP331", lambda row: row.update({STARTS: [0, *(start + 1 for start in row[STARTS][1:])]}))
starts_in_runtime_tokens = _row(
    "BP331", lambda row: row.update({STARTS: [start - index for index, start in enumerate(row[STARTS])]})
)
two_sequences_merged = _row("BP331", lambda row: row[STARTS].pop(1))
two_sequences_merged_without_alignment = breaks("BP348", where="training num_sequences", base="plain")(
    lambda folder: _change_row(folder, lambda row: row[STARTS].pop(1))
)
sequence_cut_in_two = _row("BP331", lambda row: row[STARTS].insert(1, row[STARTS][1] // 2))
sequence_cut_in_two_without_alignment = breaks("BP348", where="training num_sequences", base="plain")(
    lambda folder: _change_row(folder, lambda row: row[STARTS].insert(1, row[STARTS][1] // 2))
)
mask_one_short = _row("BP303", lambda row: row[MASK].pop())
mask_one_long = _row("BP303", lambda row: row[MASK].append(0))
mask_empty = _row("BP303", lambda row: row[MASK].clear())


@breaks_rows("BP303")
def mask_in_runtime_tokens(folder: Path) -> None:
    def change(row: Row) -> None:
        row[MASK] = [value for begin, end in sequences_of(row) for value in row[MASK][begin : end - 1]]

    _change_row(folder, change)


token_removed = _row("BP303", lambda row: row[IDS].pop())
token_out_of_vocabulary = _row("BP311", lambda row: row[IDS].__setitem__(1, VOCAB_SIZE))
last_token_out_of_vocabulary = _row("BP311", lambda row: row[IDS].__setitem__(-1, 2**31 - 1))
negative_token = _row("BP311", lambda row: row[IDS].__setitem__(1, -100))
token_in_vocabulary_padding = _row("BP312", lambda row: row[IDS].__setitem__(1, PADDED_VOCAB_SIZE - 1), given=PADDED)
token_beyond_vocabulary_padding = _row("BP311", lambda row: row[IDS].__setitem__(1, PADDED_VOCAB_SIZE), given=PADDED)
row_of_eos_only = _row("BP504", lambda row: row.update({IDS: [EOS] * len(row[IDS])}))
eos_replaced_everywhere = breaks_rows("BP336", where="training")(
    lambda folder: rewrite_all_rows(
        folder, lambda row: row.update({IDS: [PAD if token == EOS else token for token in row[IDS]]})
    )
)
token_changed = breaks_file("BP343")(
    lambda folder: _without_record(folder, lambda rows: rows[1][IDS].__setitem__(1, 7))
)
rows_in_another_order = breaks_file("BP343")(lambda folder: _without_record(folder, lambda rows: rows.reverse()))


@breaks_file("BP343")
def sequences_in_another_order(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        pieces = list(reversed(sequences_of(rows[1])))
        for name in (IDS, MASK):
            rows[1][name] = [value for begin, end in pieces for value in rows[1][name][begin:end]]
        lengths = [end - begin for begin, end in pieces]
        rows[1][STARTS] = [sum(lengths[:index]) for index in range(len(lengths))]

    _without_record(folder, change)


stored_lengths_aligned = breaks_rows("BP308", "BP331", where="training")(
    lambda folder: rewrite_all_rows(
        folder, lambda row: _replace_sequences(row, lambda ids, mask: (ids[:-1], mask[:-1]))
    )
)


@breaks_rows("BP331")
def token_appended(folder: Path) -> None:
    def change(row: Row) -> None:
        row[IDS].append(EOS)
        row[MASK].append(0)

    _change_row(folder, change)


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


a_thousand_sequences_in_a_row = breaks_rows("BP322", "BP330")(
    lambda folder: _change_row(
        folder, lambda row: row.update({IDS: [7, EOS] * 1025, MASK: [1, 0] * 1025, STARTS: [*range(0, 2050, 2)]})
    )
)


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
