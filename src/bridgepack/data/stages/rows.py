"""What becomes of the rows of a range whose sequences are kept, cut or dropped: packed, packed in part, or dropped."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.data.store.token_file import TokenIndex
from bridgepack.geometry import IntArray
from bridgepack.records import DropReason

#: Reasons of pieces that lose nothing: an equal one is packed, or nothing was to be trained.
_LEAST_LOST: Mapping[str, int] = {DropReason.DUPLICATE: 1, DropReason.NO_TRAINED_TOKEN: 2}


class DroppedSequence(NamedTuple):
    """A sequence of a token file that is not packed."""

    position: int  #: index in the token file
    reason: str  #: value of a `DropReason`
    detail: str


class PieceNote(NamedTuple):
    """A piece that is dropped while others of its row stay; fields as of `RowNote`."""

    row_offset: int
    kind: str
    detail: str
    first_token: int  #: start in its row, stored coordinates


class RowFates(NamedTuple):
    """The rows of a range, of which some may have several sequences."""

    first_tokens: IntArray  #: shape [num_sequences], int64, start of each sequence of the token file in its row
    #: shape [num_sequences], int64, packed and dropped pieces of its row; 0 if the row is one sequence
    num_pieces: IntArray
    is_earlier: npt.NDArray[np.bool_]  #: shape [num_sequences], another sequence of the row follows in the token file
    num_left_out: IntArray  #: shape [num_sequences], int64, pieces of its row that train nothing, left out
    row_drops: tuple[tuple[int, str, str], ...]  #: rows of which nothing is packed, as of `RowNote`
    piece_drops: tuple[PieceNote, ...]


def row_fates(index: TokenIndex, counts: IntArray, num_parts: IntArray, drops: Iterable[DroppedSequence]) -> RowFates:
    """Return what becomes of rows.

    A piece that trains nothing is left out; any other piece that is dropped while others stay is noted.

    Args:
        index: of the token file.
        counts: shape [num_sequences], sequences that are packed of each one in the token file.
        num_parts: shape [num_sequences], parts that each one is split into, 0 if it is not split.
        drops: sequences of which nothing is packed, each once.
    """
    rows, firsts, row_of, sizes = np.unique(
        index.row_offsets, return_index=True, return_inverse=True, return_counts=True
    )
    first_tokens = first_tokens_of(index.row_offsets, index.stored_lengths)
    num_kept = np.bincount(row_of, counts, len(rows)).astype(np.int64)
    of_rows: dict[int, list[DroppedSequence]] = {}
    num_lost, is_lost = np.zeros(len(rows), dtype=np.int64), np.zeros(len(counts), dtype=np.bool_)
    piece_drops = []
    for item in sorted(drops):
        row = int(row_of[item.position])
        if not num_kept[row]:
            of_rows.setdefault(row, []).append(item)
        elif item.reason != DropReason.NO_TRAINED_TOKEN:
            num_lost[row] += 1
            is_lost[item.position] = True
            detail = f"piece {item.position - int(firsts[row]) + 1} of {sizes[row]}: {item.detail}"
            first_token = int(first_tokens[item.position])
            piece_drops.append(PieceNote(int(rows[row]), item.reason, detail, first_token))
    is_several = (sizes > 1) | (np.bincount(row_of, num_parts, len(rows)) > 0)
    num_untrained = np.maximum(num_parts, 1) - counts - is_lost
    return RowFates(
        first_tokens=first_tokens,
        num_pieces=np.where(is_several, num_kept + num_lost, 0)[row_of],
        is_earlier=np.diff(row_of, append=-1) == 0,
        num_left_out=np.where(is_several & (num_kept > 0), np.bincount(row_of, num_untrained, len(rows)), 0)[row_of],
        row_drops=tuple(_of_row(int(rows[row]), members) for row, members in sorted(of_rows.items())),
        piece_drops=tuple(piece_drops),
    )


def first_tokens_of(row_offsets: npt.NDArray[np.int32], stored_lengths: npt.NDArray[np.int32]) -> IntArray:
    """Return where each sequence begins in its row, of the row's sequences one after the other.

    Example: rows 4 4 7, lengths 10 20 5 -> 0 10 0.
    """
    starts = np.cumsum(stored_lengths, dtype=np.int64) - stored_lengths
    _, firsts, row_of = np.unique(row_offsets, return_index=True, return_inverse=True)
    first_tokens: IntArray = starts - starts[firsts][row_of]
    return first_tokens


def _of_row(row: int, members: list[DroppedSequence]) -> tuple[int, str, str]:
    """Return the drop of a row, for the reason of the first piece that is lost: it would train what no other does."""
    number, first = min(enumerate(members, start=1), key=lambda item: _LEAST_LOST.get(item[1].reason, 0))
    prefix = f"all of its {len(members)} pieces are dropped, piece {number} because: " if len(members) > 1 else ""
    return row, first.reason, f"{prefix}{first.detail}"


def of_duplicates(duplicates: Mapping[int, str]) -> list[DroppedSequence]:
    """Return the drops of sequences that equal earlier ones; `duplicates` are index in the token file -> detail."""
    return [DroppedSequence(position, DropReason.DUPLICATE, detail) for position, detail in duplicates.items()]
