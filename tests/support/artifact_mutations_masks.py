"""Mutations of loss masks. The manifest's checksums fit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from tests.support.artifact_mutations import (
    IDS,
    MASK,
    Row,
    breaks_rows,
    rewrite_all_rows,
    rewrite_rows,
    sequences_of,
)
from tests.support.packed_rows import SCHEMA

EOS = 2
_FLOAT_MASK = SCHEMA.set(1, pa.field(MASK, pa.list_(pa.float32())))

Mask = Sequence[float]


def _masks(row: Row, change: Callable[[list[int], Mask], Mask]) -> None:
    """Change the mask of each sequence of a row; `change` takes its tokens and its mask."""
    row[MASK] = [
        value for begin, end in sequences_of(row) for value in change(row[IDS][begin:end], row[MASK][begin:end])
    ]


def _row(folder: Path, change: Callable[[list[int], Mask], Mask]) -> None:
    rewrite_rows(folder, lambda rows: _masks(rows[1], change))


def _shard(folder: Path, change: Callable[[list[int], Mask], Mask]) -> None:
    def change_rows(rows: list[Row]) -> None:
        for row in rows:
            _masks(row, change)

    rewrite_rows(folder, change_rows)


def _all(folder: Path, change: Callable[[list[int], Mask], Mask]) -> None:
    rewrite_all_rows(folder, lambda row: _masks(row, change))


@breaks_rows("BP309", where="training")
def masks_not_rolled(folder: Path) -> None:
    _all(folder, lambda ids, mask: [0, *mask[:-1]])


@breaks_rows("BP332", where="training", base="plain")
def masks_not_rolled_and_without_the_last_newline(folder: Path) -> None:
    _all(folder, lambda ids, mask: [0, *mask[:-2], 0])


@breaks_rows("BP336", where="training")
def masks_rolled_too_often(folder: Path) -> None:
    _all(folder, lambda ids, mask: [*mask[2:], 0, 0])


@breaks_rows("BP309")
def mask_of_ones(folder: Path) -> None:
    _row(folder, lambda ids, mask: [1] * len(mask))


@breaks_rows("BP333", where="training")
def masks_that_train_everything(folder: Path) -> None:
    _all(folder, lambda ids, mask: [1] * (len(mask) - 1) + [0])


@breaks_rows("BP318")
def mask_of_zeros(folder: Path) -> None:
    _row(folder, lambda ids, mask: [0] * len(mask))


@breaks_rows("BP318", where="training")
def masks_of_zeros(folder: Path) -> None:
    _all(folder, lambda ids, mask: [0] * len(mask))


@breaks_rows("BP319")
def sequence_with_a_mask_of_zeros(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        _, end = sequences_of(rows[1])[0]
        rows[1][MASK][:end] = [0] * end

    rewrite_rows(folder, change)


@breaks_rows("BP318")
def mask_that_trains_only_what_follows_eos(folder: Path) -> None:
    _row(folder, lambda ids, mask: [int(token == EOS) for token in ids[:-1]] + [0])


@breaks_rows("BP309")
def last_mask_element_one(folder: Path) -> None:
    rewrite_rows(folder, lambda rows: rows[1][MASK].__setitem__(-1, 1))


@breaks_rows("BP309")
def mask_inverted(folder: Path) -> None:
    _row(folder, lambda ids, mask: [1 - value for value in mask])


@breaks_rows("BP310", "BP326")
def fractional_mask(folder: Path) -> None:
    rewrite_rows(
        folder, lambda rows: _masks(rows[1], lambda ids, mask: [0.5 * value for value in mask]), schema=_FLOAT_MASK
    )


@breaks_rows("BP310", "BP326")
def mask_that_is_no_number(folder: Path) -> None:
    rewrite_rows(folder, lambda rows: rows[1][MASK].__setitem__(0, float("nan")), schema=_FLOAT_MASK)


@breaks_rows("BP310")
def mask_of_twos(folder: Path) -> None:
    _row(folder, lambda ids, mask: [2 * value for value in mask])


@breaks_rows("BP310")
def negative_mask(folder: Path) -> None:
    _row(folder, lambda ids, mask: [-value for value in mask])


@breaks_rows("BP310")
def ignored_labels_in_place_of_a_mask(folder: Path) -> None:
    _row(folder, lambda ids, mask: [1 if value else -100 for value in mask])


@breaks_rows("BP310")
def labels_in_place_of_a_mask(folder: Path) -> None:
    _row(folder, lambda ids, mask: [token % 128 for token in ids])


@breaks_rows("BP303")
def masks_of_two_rows_swapped(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        other = next(row for row in rows if len(row[MASK]) != len(rows[1][MASK]))
        rows[1][MASK], other[MASK] = other[MASK], rows[1][MASK]

    rewrite_rows(folder, change)


@breaks_rows("BP335")
def padding_trained(folder: Path) -> None:
    def change(ids: list[int], mask: Mask) -> Mask:
        is_padding = [int(token == following == EOS) for token, following in pairwise(ids)]
        return [max(value, pads) for value, pads in zip(mask, [*is_padding, 0], strict=True)]

    _shard(folder, change)


@breaks_rows("BP336", where="training")
def end_of_turn_not_trained(folder: Path) -> None:
    _all(folder, lambda ids, mask: [*(0 if label == EOS else mask[index] for index, label in enumerate(ids[1:])), 0])
