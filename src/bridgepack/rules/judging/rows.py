"""The rows that a rule judges. Derived arrays are flat, computed once per batch, and shared by the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, RowBatch
from bridgepack.records.sequences import is_learned
from bridgepack.rules.judging.context import CheckContext

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Offenders:
    """Rows or sequences of one batch that break a rule."""

    rows: IntArray  #: positions of rows in the batch, one per offence; shape [num_offences], int64
    #: 0-based position of the sequence in its row, one per offence; None if whole rows offend
    sequences: IntArray | None = None
    found: Callable[[int], str]  #: the value of offence number `i`, as text
    allowed: str  #: the allowed values


def rows_where(is_bad: BoolArray, actual_of: Callable[[int], str], allowed_values: str) -> Offenders:
    """Return the rows that `is_bad` marks, shape [num_rows]; `actual_of` takes a row's position."""
    bad = np.flatnonzero(is_bad)
    return Offenders(rows=bad, found=lambda offence: actual_of(int(bad[offence])), allowed=allowed_values)


def sequences_where(rows: Rows, is_bad: BoolArray, actual_of: Callable[[int], str], allowed_values: str) -> Offenders:
    """Return the sequences that `is_bad` marks, shape [num_sequences]; `actual_of` takes an index into `starts`."""
    bad = np.flatnonzero(is_bad)
    places = rows.row_of_sequence[bad]
    return Offenders(
        rows=places,
        sequences=bad - rows.start_offsets[places],
        found=lambda offence: actual_of(int(bad[offence])),
        allowed=allowed_values,
    )


def rows_with_tokens(
    rows: Rows, positions: IntArray, actual_of: Callable[[int], str], allowed_values: str
) -> Offenders:
    """Return the rows of positions in `input_ids`; `actual_of` takes the first such position of a row."""
    places, first = np.unique(rows.row_of(positions), return_index=True)
    return Offenders(
        rows=places, found=lambda offence: actual_of(int(positions[first[offence]])), allowed=allowed_values
    )


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one batch. In raw rows lengths may disagree and starts may be out of range.

    In valid rows the columns agree: each token is in exactly one sequence of at least two stored tokens. Properties of
    sequences in `input_ids` are correct for valid rows only.
    """

    context: CheckContext  #: facts that they are judged against
    numbers: IntArray  #: 0-based index of each row in its shard; shape [num_rows], int64
    input_ids: npt.NDArray[Any]  #: shape [num_stored_tokens], integer, stored
    stored_mask: npt.NDArray[Any]  #: shape [num_mask_elements], number, label-aligned, as stored
    starts: IntArray  #: starts of all sequences, relative to their row; shape [num_sequences], int64, stored
    row_lengths: IntArray  #: stored tokens of each row; shape [num_rows], int64
    mask_lengths: IntArray  #: mask elements of each row; shape [num_rows], int64
    sequences_per_row: IntArray  #: number of sequences of each row; shape [num_rows], int64

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    @cached_property
    def token_offsets(self) -> IntArray:
        """Start of each row in `input_ids`; shape [num_rows + 1], int64, from 0."""
        return _offsets(self.row_lengths)

    @cached_property
    def start_offsets(self) -> IntArray:
        """Start of each row in `starts`; shape [num_rows + 1], int64, from 0."""
        return _offsets(self.sequences_per_row)

    @cached_property
    def row_of_sequence(self) -> IntArray:
        """Row position of each sequence; shape [num_sequences], int64."""
        return np.repeat(np.arange(self.num_rows), self.sequences_per_row)

    @cached_property
    def is_last_start(self) -> BoolArray:
        """Whether a start is the last of its row; shape [num_sequences]."""
        is_last = np.zeros(len(self.starts), dtype=np.bool_)
        is_last[self.start_offsets[1:][self.sequences_per_row > 0] - 1] = True
        return is_last

    @cached_property
    def gaps(self) -> IntArray:
        """Stored tokens from each start to the next or to the row's end; shape [num_sequences], int64."""
        following = np.append(self.starts[1:], 0)
        ends = np.where(self.is_last_start, self.row_lengths[self.row_of_sequence], following)
        return ends - self.starts

    @cached_property
    def sequence_begin(self) -> IntArray:
        """First token of each sequence in `input_ids`; shape [num_sequences], int64."""
        return self.starts + self.token_offsets[self.row_of_sequence]

    @cached_property
    def sequence_end(self) -> IntArray:
        """One past the last token of each sequence in `input_ids`; shape [num_sequences], int64."""
        return np.append(self.sequence_begin[1:], self.token_offsets[-1])

    @cached_property
    def runtime_lengths(self) -> IntArray:
        """Physical runtime length of each sequence: stored - 1; shape [num_sequences], int64."""
        return self.sequence_end - self.sequence_begin - 1

    @cached_property
    def row_widths(self) -> IntArray:
        """Runtime tokens of each row: stored tokens - sequences; shape [num_rows], int64."""
        return self.row_lengths - self.sequences_per_row

    @cached_property
    def has_binary_mask(self) -> bool:
        """Whether every mask element is 0 or 1."""
        mask = self.stored_mask
        if mask.dtype.kind in "iu":
            return bool(mask.min() >= 0 and mask.max() <= 1)
        return bool(((mask == 0) | (mask == 1)).all())

    @cached_property
    def is_trained(self) -> MaskArray:
        """1 where the host sees a non-zero mask (it casts to integers); shape [num_stored_tokens], int8."""
        if self.has_binary_mask:
            return self.stored_mask.astype(np.int8, copy=False)
        return (np.abs(self.stored_mask) >= 1).astype(np.int8)

    @cached_property
    def trained_per_sequence(self) -> IntArray:
        """Ones of each sequence's mask; shape [num_sequences], int64."""
        return np.add.reduceat(self.is_trained, self.sequence_begin, dtype=np.int64)

    @cached_property
    def eos_positions(self) -> IntArray:
        """Positions of the EOS token in `input_ids`, ascending; empty if the token is unknown."""
        if self.context.eos_token_id is None:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.input_ids == self.context.eos_token_id)

    @cached_property
    def masked_eos(self) -> IntArray:
        """Positions in `input_ids` of EOS with mask 1, ascending; `is_learned` says whether the host clears it."""
        positions: IntArray = self.eos_positions[self.is_trained[self.eos_positions] != 0]
        return positions

    @cached_property
    def labels_after_eos(self) -> IntArray:
        """The positions of EOS with mask 1 that have a label: a next token in their sequence."""
        positions = self.masked_eos
        return positions[positions + 1 < self.sequence_end[self.sequence_of(positions)]]

    @cached_property
    def after_eos_per_sequence(self) -> IntArray:
        """Ones of each sequence's mask at an EOS: labels that 0.6 does not train; shape [num_sequences], int64."""
        return np.bincount(self.sequence_of(self.masked_eos), minlength=len(self.starts))

    @cached_property
    def effective_per_sequence(self) -> IntArray:
        """Number of labels of each sequence that the host trains; shape [num_sequences], int64."""
        places = self.masked_eos
        untrained_eos = places[
            ~is_learned(
                self.is_trained[places],
                self.input_ids[places],
                eos_token_id=self.context.eos_token_id or 0,
                release=self.context.release,
            )
        ]
        if not len(untrained_eos):
            return self.trained_per_sequence
        num_cleared = np.bincount(self.sequence_of(untrained_eos), minlength=len(self.starts))
        return self.trained_per_sequence - num_cleared

    def per_row(self, per_sequence: IntArray) -> IntArray:
        """Return sums over the sequences of each row; shape [num_rows], int64."""
        sums: IntArray = np.add.reduceat(per_sequence, self.start_offsets[:-1])
        return sums

    def sequence_of(self, positions: IntArray) -> IntArray:
        """Return the sequence, as an index into `starts`, of positions in `input_ids`."""
        return np.searchsorted(self.sequence_begin, positions, side="right") - 1

    def row_of(self, positions: IntArray) -> IntArray:
        """Return the row position of positions in `input_ids`."""
        return np.searchsorted(self.token_offsets, positions, side="right") - 1

    def num_in_rows(self, positions: IntArray) -> IntArray:
        """Return the number of positions in `input_ids` in each row; shape [num_rows], int64."""
        counts: IntArray = np.bincount(self.row_of(positions), minlength=self.num_rows)
        return counts

    def only(self, is_kept: BoolArray) -> Rows:
        """Return the rows that `is_kept` marks, shape [num_rows]; the same object if it marks all."""
        if is_kept.all():
            return self
        return Rows(
            context=self.context,
            numbers=self.numbers[is_kept],
            input_ids=self.input_ids[np.repeat(is_kept, self.row_lengths)],
            stored_mask=self.stored_mask[np.repeat(is_kept, self.mask_lengths)],
            starts=self.starts[np.repeat(is_kept, self.sequences_per_row)],
            row_lengths=self.row_lengths[is_kept],
            mask_lengths=self.mask_lengths[is_kept],
            sequences_per_row=self.sequences_per_row[is_kept],
        )


def rows_of(batch: RowBatch, context: CheckContext) -> Rows:
    """Return the raw rows of a batch; its columns are not copied."""
    return Rows(
        context=context,
        numbers=batch.first_row + np.arange(batch.num_rows),
        input_ids=batch.input_ids[batch.token_offsets[0] : batch.token_offsets[-1]],
        stored_mask=batch.loss_mask[batch.mask_offsets[0] : batch.mask_offsets[-1]],
        starts=batch.seq_start_id[batch.start_offsets[0] : batch.start_offsets[-1]].astype(np.int64),
        row_lengths=np.diff(batch.token_offsets),
        mask_lengths=np.diff(batch.mask_offsets),
        sequences_per_row=np.diff(batch.start_offsets),
    )


def _offsets(lengths: IntArray) -> IntArray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
