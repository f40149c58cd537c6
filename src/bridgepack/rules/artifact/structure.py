"""Rules on raw rows: the three columns must describe sequences of at least two stored tokens."""

from collections.abc import Callable

import numpy as np

from bridgepack.rules.engine.rows import BoolArray, Offenders, Rows, rows_where, sequences_where
from bridgepack.rules.engine.rule import ERROR, structure_rule


@structure_rule("BP328", ERROR, "PSB302")
def row_empty(rows: Rows) -> Offenders:
    """A row has no tokens.

    Why: Crash, later: the host's collate concatenates zero sequences, in a DataLoader worker, when the row is read.
    Bad: input_ids [], loss_mask [], seq_start_id [].
    Good: input_ids [11, 12, 2], loss_mask [1, 1, 0], seq_start_id [0].
    Fix: Remove rows without tokens and build the artifact again.
    """
    is_empty = rows.row_lengths == 0
    return rows_where(is_empty, lambda _: "0 stored tokens", "at least 2 stored tokens")


@structure_rule("BP327", ERROR, "PSB304")
def row_without_sequence(rows: Rows) -> Offenders:
    """A row has tokens and an empty seq_start_id.

    Why: Crash, later: the host's collate concatenates zero sequences, in a DataLoader worker, when the row is read.
    Bad: input_ids [11, 12, 2], seq_start_id []. Good: input_ids [11, 12, 2], seq_start_id [0].
    Fix: Store the first token of every sequence; a row of one sequence has seq_start_id [0].
    """
    is_bare = (rows.sequences_per_row == 0) & (rows.row_lengths > 0)
    return rows_where(is_bare, lambda _: "seq_start_id []", "at least one start, the first 0")


@structure_rule("BP303", ERROR, "PSB303")
def loss_mask_length_differs(rows: Rows) -> Offenders:
    """loss_mask and input_ids of a row have different lengths.

    Why: Silent: a short mask is padded at the row's end, so later sequences train wrong labels. Crash for a long one.
    Bad: input_ids [11, 12, 2], loss_mask [1, 0]. Good: input_ids [11, 12, 2], loss_mask [1, 1, 0].
    Fix: Store one mask element per stored token, and build the artifact again.
    """
    differs = rows.mask_lengths != rows.row_lengths
    return rows_where(
        differs,
        lambda row: f"{rows.mask_lengths[row]} mask elements for {rows.row_lengths[row]} tokens",
        "one mask element per stored token",
    )


@structure_rule("BP304", ERROR, "PSB304")
def first_start_not_zero(rows: Rows) -> Offenders:
    """The first seq_start_id of a row is not 0.

    Why: Silent: tokens before the first start are dropped from inputs and labels.
    Bad: seq_start_id [1, 4]. Good: seq_start_id [0, 4].
    Fix: Begin seq_start_id with 0 and build the artifact again.
    """
    has_start = rows.sequences_per_row > 0
    first = np.zeros(rows.num_rows, dtype=np.int64)
    first[has_start] = rows.starts[rows.start_offsets[:-1][has_start]]
    return rows_where(first != 0, lambda row: f"first start {first[row]}", "0")


@structure_rule("BP305", ERROR, "PSB305")
def final_boundary_stored(rows: Rows) -> Offenders:
    """seq_start_id ends with the row's length, as cu_seqlens do.

    Why: Silent: the host appends the boundary itself, so cu_seqlens decrease at the end; some kernels crash on it.
    Bad: 7 stored tokens, seq_start_id [0, 4, 7]. Good: 7 stored tokens, seq_start_id [0, 4].
    Fix: Remove the last boundary from seq_start_id.
    """
    is_bad = rows.is_last_start & (rows.starts == rows.row_lengths[rows.row_of_sequence]) & (rows.starts > 0)
    return _sequences(rows, is_bad, lambda start: f"last start {rows.starts[start]}, the row's length")


@structure_rule("BP307", ERROR, "PSB307")
def start_outside_row(rows: Rows) -> Offenders:
    """A seq_start_id is negative or beyond the row's end.

    Why: Crash or silent: position ids and inputs differ in length; the host compares them in a batch's first row only.
    Bad: 7 stored tokens, seq_start_id [0, 9]. Good: 7 stored tokens, seq_start_id [0, 4].
    Fix: Store starts in stored tokens of the same row and build the artifact again.
    """
    lengths = rows.row_lengths[rows.row_of_sequence]
    is_bad = (rows.starts < 0) | (rows.starts > lengths)
    return _sequences(
        rows, is_bad, lambda start: f"start {rows.starts[start]} in a row of {lengths[start]} stored tokens"
    )


@structure_rule("BP306", ERROR, "PSB306")
def sequence_too_short(rows: Rows) -> Offenders:
    """A sequence has fewer than two stored tokens, or starts do not increase.

    Why: Silent: a gap of 0 makes cu_seqlens decrease; a gap of 1 makes a sequence without runtime tokens.
    Bad: seq_start_id [0, 4, 4], or [0, 4, 5]. Good: seq_start_id [0, 4, 6].
    Fix: Drop sequences of fewer than two tokens and store starts in increasing order.
    """
    is_final_boundary = rows.is_last_start & (rows.gaps <= 0)
    is_bad = (rows.gaps < 2) & ~is_final_boundary
    return _sequences(
        rows, is_bad, lambda start: f"start {rows.starts[start]} and {rows.gaps[start]} tokens to the next"
    )


def _sequences(rows: Rows, is_bad: BoolArray, found: Callable[[int], str]) -> Offenders:
    return sequences_where(rows, is_bad, found, "starts from 0, each at least 2 before the next and the row's end")
