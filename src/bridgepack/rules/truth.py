"""What the rows of a split really hold, folded over its batches; rules compare claims with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.rules.batches import SoundRows

#: Starts of trained runs kept per split for the share of their most frequent token.
_MAX_RUNS = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedRuns:
    """Tokens where runs of trained positions begin and end, over the first runs of a split.

    Attributes:
        num_runs: runs looked at.
        first_fraction: share of the most frequent token at a run's first position, 0-1.
        before_fraction: share of the most frequent token one position earlier, 0-1.
        ends_on_eos_fraction: share of runs whose last position holds EOS as input, 0-1.
    """

    num_runs: int
    first_fraction: float
    before_fraction: float
    ends_on_eos_fraction: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTruth:
    """Totals over the sound rows of a split. Lengths are runtime tokens with alignment padding.

    Attributes:
        split: its name.
        is_complete: every row was read and is sound.
        num_rows: sound rows.
        num_sequences: sequences in them.
        num_tokens: runtime tokens.
        num_trained_tokens: ones of the stored mask.
        max_runtime_length: longest sequence.
        max_sequences_per_row: most sequences in a row.
        min_row_width: narrowest row.
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
    max_runtime_length: int
    max_sequences_per_row: int
    min_row_width: int
    max_alignment_tokens: int
    num_misaligned_runtime: int
    num_misaligned_stored: int
    num_trained_eos: int
    num_fully_trained: int
    repeated_tails: Mapping[int, int]
    trained_runs: TrainedRuns


@dataclass(kw_only=True, slots=True)
class SplitTotals:
    """Accumulator of a `SplitTruth`: `add` each batch, then `truth`."""

    num_rows: int = 0
    num_sequences: int = 0
    num_tokens: int = 0
    num_trained_tokens: int = 0
    max_runtime_length: int = 0
    max_sequences_per_row: int = 0
    min_row_width: int | None = None
    max_alignment_tokens: int = 0
    num_misaligned_runtime: int = 0
    num_misaligned_stored: int = 0
    num_trained_eos: int = 0
    num_fully_trained: int = 0
    repeated_tails: Counter[int] = field(default_factory=Counter)
    run_first: list[IntArray] = field(default_factory=list)
    run_before: list[IntArray] = field(default_factory=list)
    num_runs: int = 0
    num_run_ends: int = 0
    num_run_ends_on_eos: int = 0

    def add(self, rows: SoundRows) -> None:
        """Take in one batch."""
        self.num_rows += rows.num_rows
        self.num_sequences += len(rows.starts)
        self.num_tokens += int(rows.row_widths.sum())
        self.num_trained_tokens += int(rows.trained_per_sequence.sum())
        self.max_runtime_length = max(self.max_runtime_length, int(rows.runtime_lengths.max()))
        self.max_sequences_per_row = max(self.max_sequences_per_row, int(rows.sequences_per_row.max()))
        narrowest = int(rows.row_widths.min())
        self.min_row_width = narrowest if self.min_row_width is None else min(self.min_row_width, narrowest)
        self._add_alignment(rows)
        self.num_trained_eos += _num_trained_eos(rows)
        self._add_tails(rows)
        if self.num_runs < _MAX_RUNS:
            self._add_runs(rows)

    def truth(self, split: str, *, is_complete: bool) -> SplitTruth:
        """Return the totals."""
        return SplitTruth(
            split=split,
            is_complete=is_complete,
            num_rows=self.num_rows,
            num_sequences=self.num_sequences,
            num_tokens=self.num_tokens,
            num_trained_tokens=self.num_trained_tokens,
            max_runtime_length=self.max_runtime_length,
            max_sequences_per_row=self.max_sequences_per_row,
            min_row_width=self.min_row_width or 0,
            max_alignment_tokens=self.max_alignment_tokens,
            num_misaligned_runtime=self.num_misaligned_runtime,
            num_misaligned_stored=self.num_misaligned_stored,
            num_trained_eos=self.num_trained_eos,
            num_fully_trained=self.num_fully_trained,
            repeated_tails=dict(self.repeated_tails),
            trained_runs=TrainedRuns(
                num_runs=self.num_runs,
                first_fraction=_modal_fraction(self.run_first),
                before_fraction=_modal_fraction(self.run_before),
                ends_on_eos_fraction=self.num_run_ends_on_eos / max(self.num_run_ends, 1),
            ),
        )

    def _add_alignment(self, rows: SoundRows) -> None:
        multiple = rows.context.pad_seq_to_mult or 1
        self.num_misaligned_runtime += int(np.count_nonzero(rows.runtime_lengths % multiple))
        self.num_misaligned_stored += int(np.count_nonzero((rows.runtime_lengths + 1) % multiple))
        padding = _most_padding(rows, multiple)
        self.max_alignment_tokens += int(padding.sum())
        is_fully_trained = rows.trained_per_sequence >= rows.runtime_lengths - padding
        self.num_fully_trained += int(np.count_nonzero(is_fully_trained & (rows.trained_per_sequence > 0)))

    def _add_tails(self, rows: SoundRows) -> None:
        if rows.context.eos_token_id is None:
            return
        ends = rows.sequence_end[rows.runtime_lengths >= 2]
        tokens = rows.input_ids[ends - 1]
        is_repeated = (tokens == rows.input_ids[ends - 2]) & (tokens != rows.context.eos_token_id)
        is_untrained = (rows.is_trained[ends - 2] == 0) & (rows.is_trained[ends - 3] == 0)
        values, counts = np.unique(tokens[is_repeated & is_untrained], return_counts=True)
        self.repeated_tails.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _add_runs(self, rows: SoundRows) -> None:
        mask = rows.is_trained
        first = np.flatnonzero((mask[1:] != 0) & (mask[:-1] == 0)) + 1
        is_inside = np.ones(len(mask), dtype=np.bool_)
        is_inside[rows.sequence_begin] = False
        first = first[is_inside[first]][: _MAX_RUNS - self.num_runs]
        self.run_first.append(rows.input_ids[first].astype(np.int64))
        self.run_before.append(rows.input_ids[first - 1].astype(np.int64))
        self.num_runs += len(first)
        last = np.flatnonzero((mask[:-1] != 0) & (mask[1:] == 0))
        self.num_run_ends += len(last)
        if rows.context.eos_token_id is not None:
            self.num_run_ends_on_eos += int(np.count_nonzero(rows.input_ids[last] == rows.context.eos_token_id))


def _num_trained_eos(rows: SoundRows) -> int:
    inside = rows.eos_positions[rows.eos_positions > 0]
    return int(np.count_nonzero(rows.is_trained[inside - 1]))


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


def _modal_fraction(chunks: list[IntArray]) -> float:
    tokens = np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int64)
    if not len(tokens):
        return 0.0
    return float(np.unique(tokens, return_counts=True)[1].max() / len(tokens))
