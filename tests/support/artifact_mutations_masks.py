"""Mutations of loss masks. The manifest's checksums fit them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from tests.support.artifact_mutations import (
    IDS,
    MASK,
    Mutation,
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


def _row(code: str, change: Callable[[list[int], Mask], Mask]) -> Mutation:
    """Return a mutation of the second row of `SHARD`."""
    return breaks_rows(code)(lambda folder: rewrite_rows(folder, lambda rows: _masks(rows[1], change)))


def _shard(folder: Path, change: Callable[[list[int], Mask], Mask]) -> None:
    def change_rows(rows: list[Row]) -> None:
        for row in rows:
            _masks(row, change)

    rewrite_rows(folder, change_rows)


def _all(code: str, change: Callable[[list[int], Mask], Mask], **fields: str) -> Mutation:
    """Return a mutation of all training rows."""
    breaking = breaks_rows(code, where="training", **fields)
    return breaking(lambda folder: rewrite_all_rows(folder, lambda row: _masks(row, change)))


masks_not_rolled = _all("BP309", lambda ids, mask: [0, *mask[:-1]])
masks_not_rolled_and_without_the_last_newline = _all("BP332", lambda ids, mask: [0, *mask[:-2], 0], base="plain")
masks_rolled_too_often = _all("BP336", lambda ids, mask: [*mask[2:], 0, 0])
mask_of_ones = _row("BP309", lambda ids, mask: [1] * len(mask))
masks_that_train_everything = _all("BP333", lambda ids, mask: [1] * (len(mask) - 1) + [0])
mask_of_zeros = _row("BP318", lambda ids, mask: [0] * len(mask))
masks_of_zeros = _all("BP318", lambda ids, mask: [0] * len(mask))


@breaks_rows("BP319")
def sequence_with_a_mask_of_zeros(folder: Path) -> None:
    def change(rows: list[Row]) -> None:
        _, end = sequences_of(rows[1])[0]
        rows[1][MASK][:end] = [0] * end

    rewrite_rows(folder, change)


mask_that_trains_only_what_follows_eos = _row(
    "BP318", lambda ids, mask: [int(token == EOS) for token in ids[:-1]] + [0]
)
last_mask_element_one = breaks_rows("BP309")(
    lambda folder: rewrite_rows(folder, lambda rows: rows[1][MASK].__setitem__(-1, 1))
)
mask_inverted = _row("BP309", lambda ids, mask: [1 - value for value in mask])
fractional_mask = breaks_rows("BP310", "BP326")(
    lambda folder: rewrite_rows(
        folder, lambda rows: _masks(rows[1], lambda ids, mask: [0.5 * value for value in mask]), schema=_FLOAT_MASK
    )
)
mask_that_is_no_number = breaks_rows("BP310", "BP326")(
    lambda folder: rewrite_rows(folder, lambda rows: rows[1][MASK].__setitem__(0, float("nan")), schema=_FLOAT_MASK)
)
mask_of_twos = _row("BP310", lambda ids, mask: [2 * value for value in mask])
negative_mask = _row("BP310", lambda ids, mask: [-value for value in mask])
ignored_labels_in_place_of_a_mask = _row("BP310", lambda ids, mask: [1 if value else -100 for value in mask])
labels_in_place_of_a_mask = _row("BP310", lambda ids, mask: [token % 128 for token in ids])


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


end_of_turn_not_trained = _all(
    "BP336", lambda ids, mask: [*(0 if label == EOS else mask[index] for index, label in enumerate(ids[1:])), 0]
)
