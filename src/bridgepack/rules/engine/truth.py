"""What the rows of a split really hold, summed up batch by batch and part by part; rules compare claims with it."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.rules.engine.rows import SoundRows
from bridgepack.rules.engine.trained_runs import RunSample, TrainedRuns


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTruth:
    """Totals over the sound rows of a split. Lengths are runtime tokens with alignment padding.

    A sequence is padded where its last input is EOS: there the host's logical length is less than the physical one.
    Where EOS is not known no sequence counts as padded. Without rows every number is 0.

    Attributes:
        split: its name.
        is_complete: every row was read and is sound.
        num_rows: sound rows.
        num_sequences: sequences in them.
        num_tokens: runtime tokens.
        num_trained_tokens: ones of the stored mask.
        num_effective_tokens: labels that the host trains: it clears the mask wherever the input is EOS.
        min_trained_tokens_per_row: fewest ones of the stored mask in a row.
        min_effective_tokens_per_row: fewest labels of a row that the host trains.
        min_runtime_length: shortest sequence.
        max_runtime_length: longest sequence.
        runtime_length_gcd: greatest common divisor of the lengths of all sequences: every multiple they are padded
            to divides it.
        max_sequences_per_row: most sequences in a row.
        min_row_width: narrowest row.
        max_row_width: widest row.
        row_width_gcd: greatest common divisor of the widths of all rows.
        num_full_rows: rows exactly as wide as packed_sequence_size; 0 where that is not known.
        num_unpadded_rows: rows without a padded sequence.
        num_end_padded_rows: rows whose last sequence is padded and no other.
        num_blind_rows: rows that, filled up to packed_sequence_size, have cu_seqlens and cu_seqlens_padded that
            differ in the last entry only: full rows that are end-padded, and narrower ones that are unpadded. 0
            where packed_sequence_size or EOS is not known.
        max_token_id: largest token id.
        max_alignment_tokens: most padding there can be: untrained EOS ids at the end of sequences.
        num_misaligned_runtime: sequences whose runtime length is no multiple of pad_seq_to_mult.
        num_misaligned_stored: sequences whose stored length is no multiple of it.
        num_trained_eos: trained labels that are EOS.
        num_fully_trained: sequences that train every label but the padding.
        repeated_tails: token -> sequences that end with it at least twice, untrained, where it is not EOS.
        trained_runs: where trained runs begin and end.
    """

    split: str
    is_complete: bool
    num_rows: int
    num_sequences: int
    num_tokens: int
    num_trained_tokens: int
    num_effective_tokens: int
    min_trained_tokens_per_row: int
    min_effective_tokens_per_row: int
    min_runtime_length: int
    max_runtime_length: int
    runtime_length_gcd: int
    max_sequences_per_row: int
    min_row_width: int
    max_row_width: int
    row_width_gcd: int
    num_full_rows: int
    num_unpadded_rows: int
    num_end_padded_rows: int
    num_blind_rows: int
    max_token_id: int
    max_alignment_tokens: int
    num_misaligned_runtime: int
    num_misaligned_stored: int
    num_trained_eos: int
    num_fully_trained: int
    repeated_tails: Mapping[int, int]
    trained_runs: TrainedRuns

    @property
    def mean_row_width(self) -> float:
        """Mean runtime tokens of a row; 0 without rows."""
        return self.num_tokens / self.num_rows if self.num_rows else 0.0


_MERGE = "merge"


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _merged_runs(one: RunSample, other: RunSample) -> RunSample:
    one.merge(other)
    return one


def _merged_counts(one: Counter[int], other: Counter[int]) -> Counter[int]:
    one.update(other)
    return one


_SUM: Any = {_MERGE: operator.add}
_MAX: Any = {_MERGE: max}
_MIN: Any = {_MERGE: _least}
_GCD: Any = {_MERGE: math.gcd}


@dataclass(kw_only=True, slots=True)
class SplitTotals:
    """Accumulator of a `SplitTruth`: `add` each batch, `merge` the totals of other parts, then `truth`.

    The fields are those of `SplitTruth`; the order in which parts are merged matters only for `trained_runs`.
    """

    num_rows: int = field(default=0, metadata=_SUM)
    num_sequences: int = field(default=0, metadata=_SUM)
    num_tokens: int = field(default=0, metadata=_SUM)
    num_trained_tokens: int = field(default=0, metadata=_SUM)
    num_effective_tokens: int = field(default=0, metadata=_SUM)
    min_trained_tokens_per_row: int | None = field(default=None, metadata=_MIN)
    min_effective_tokens_per_row: int | None = field(default=None, metadata=_MIN)
    min_runtime_length: int | None = field(default=None, metadata=_MIN)
    max_runtime_length: int = field(default=0, metadata=_MAX)
    runtime_length_gcd: int = field(default=0, metadata=_GCD)
    max_sequences_per_row: int = field(default=0, metadata=_MAX)
    min_row_width: int | None = field(default=None, metadata=_MIN)
    max_row_width: int = field(default=0, metadata=_MAX)
    row_width_gcd: int = field(default=0, metadata=_GCD)
    num_full_rows: int = field(default=0, metadata=_SUM)
    num_unpadded_rows: int = field(default=0, metadata=_SUM)
    num_end_padded_rows: int = field(default=0, metadata=_SUM)
    num_blind_rows: int = field(default=0, metadata=_SUM)
    max_token_id: int = field(default=0, metadata=_MAX)
    max_alignment_tokens: int = field(default=0, metadata=_SUM)
    num_misaligned_runtime: int = field(default=0, metadata=_SUM)
    num_misaligned_stored: int = field(default=0, metadata=_SUM)
    num_trained_eos: int = field(default=0, metadata=_SUM)
    num_fully_trained: int = field(default=0, metadata=_SUM)
    repeated_tails: Counter[int] = field(default_factory=Counter, metadata={_MERGE: _merged_counts})
    trained_runs: RunSample = field(default_factory=RunSample, metadata={_MERGE: _merged_runs})

    def add(self, rows: SoundRows) -> None:
        """Take in one batch of at least one row."""
        self.merge(_lengths_of(rows))
        self.merge(_training_of(rows))
        self.merge(_alignment_of(rows))
        self.merge(_boundaries_of(rows))
        self.repeated_tails.update(_repeated_tails(rows))
        self.trained_runs.add(rows)

    def merge(self, later: SplitTotals) -> None:
        """Take in the totals of rows that follow."""
        for item in fields(self):
            value = item.metadata[_MERGE](getattr(self, item.name), getattr(later, item.name))
            setattr(self, item.name, value)

    def truth(self, split: str, *, is_complete: bool) -> SplitTruth:
        """Return the totals."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) or 0 for item in fields(self)}
        values |= {"repeated_tails": dict(self.repeated_tails), "trained_runs": self.trained_runs.runs()}
        return SplitTruth(split=split, is_complete=is_complete, **values)


def _lengths_of(rows: SoundRows) -> SplitTotals:
    lengths, widths = rows.runtime_lengths, rows.row_widths
    return SplitTotals(
        num_rows=rows.num_rows,
        num_sequences=len(rows.starts),
        num_tokens=int(widths.sum()),
        min_runtime_length=int(lengths.min()),
        max_runtime_length=int(lengths.max()),
        runtime_length_gcd=int(np.gcd.reduce(lengths)),
        max_sequences_per_row=int(rows.sequences_per_row.max()),
        min_row_width=int(widths.min()),
        max_row_width=int(widths.max()),
        row_width_gcd=int(np.gcd.reduce(widths)),
        num_full_rows=int(np.count_nonzero(widths == (rows.context.packed_sequence_size or 0))),
        max_token_id=max(int(rows.input_ids.max()), 0),
    )


def _training_of(rows: SoundRows) -> SplitTotals:
    first_sequences = rows.start_offsets[:-1]
    trained = np.add.reduceat(rows.trained_per_sequence, first_sequences)
    effective = np.add.reduceat(rows.effective_per_sequence, first_sequences)
    inside = rows.eos_positions[rows.eos_positions > 0]
    return SplitTotals(
        num_trained_tokens=int(trained.sum()),
        num_effective_tokens=int(effective.sum()),
        min_trained_tokens_per_row=int(trained.min()),
        min_effective_tokens_per_row=int(effective.min()),
        num_trained_eos=int(np.count_nonzero(rows.is_trained[inside - 1])),
    )


def _alignment_of(rows: SoundRows) -> SplitTotals:
    multiple = rows.context.pad_seq_to_mult or 1
    padding = _most_padding(rows, multiple)
    is_fully_trained = rows.trained_per_sequence >= rows.runtime_lengths - padding
    return SplitTotals(
        max_alignment_tokens=int(padding.sum()),
        num_misaligned_runtime=int(np.count_nonzero(rows.runtime_lengths % multiple)),
        num_misaligned_stored=int(np.count_nonzero((rows.runtime_lengths + 1) % multiple)),
        num_fully_trained=int(np.count_nonzero(is_fully_trained & (rows.trained_per_sequence > 0))),
    )


def _boundaries_of(rows: SoundRows) -> SplitTotals:
    """Return how many rows have a logical boundary other than the physical one, and where.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn): trailing EOS inputs are stripped from each
    sequence for cu_seqlens; the rest of the row is one more sequence of logical length 0.
    """
    eos, size = rows.context.eos_token_id, rows.context.packed_sequence_size
    if eos is None:
        return SplitTotals(num_unpadded_rows=rows.num_rows)
    is_padded = rows.input_ids[rows.sequence_end - 2] == eos
    num_padded = np.add.reduceat(is_padded, rows.start_offsets[:-1], dtype=np.int64)
    is_unpadded = num_padded == 0
    is_end_padded = (num_padded == 1) & is_padded[rows.start_offsets[1:] - 1]
    is_blind = np.where(rows.row_widths < size, is_unpadded, is_end_padded) if size else np.zeros(1, dtype=np.bool_)
    return SplitTotals(
        num_unpadded_rows=int(np.count_nonzero(is_unpadded)),
        num_end_padded_rows=int(np.count_nonzero(is_end_padded)),
        num_blind_rows=int(np.count_nonzero(is_blind)),
    )


def _repeated_tails(rows: SoundRows) -> dict[int, int]:
    if rows.context.eos_token_id is None:
        return {}
    ends = rows.sequence_end[rows.runtime_lengths >= 2]
    tokens = rows.input_ids[ends - 1]
    is_repeated = (tokens == rows.input_ids[ends - 2]) & (tokens != rows.context.eos_token_id)
    is_untrained = (rows.is_trained[ends - 2] == 0) & (rows.is_trained[ends - 3] == 0)
    values, counts = np.unique(tokens[is_repeated & is_untrained], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _most_padding(rows: SoundRows, multiple: int) -> IntArray:
    """Return the most padding each sequence can have; shape [num_sequences], int64.

    That is the EOS ids at its end, fewer than `multiple`, without the first where it is a trained label.
    """
    num_eos = np.zeros(len(rows.starts), dtype=np.int64)
    if rows.context.eos_token_id is None:
        return num_eos
    remaining = np.arange(len(rows.starts))
    for distance in range(1, multiple):
        remaining = remaining[rows.runtime_lengths[remaining] >= distance]
        remaining = remaining[rows.input_ids[rows.sequence_end[remaining] - distance] == rows.context.eos_token_id]
        if not len(remaining):
            break
        num_eos[remaining] = distance
    ends_sequence = (num_eos > 0) & (rows.is_trained[rows.sequence_end - num_eos - 1] != 0)
    return np.where(ends_sequence, num_eos - 1, num_eos)
