"""Totals over the rows of a split, added up batch by batch; rules compare the manifest's claims with them."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.rules.judging.rows import Rows


def _total(grow: Callable[[int, int], int]) -> Any:
    return field(default=0, metadata={"grow": grow})


_SUM, _MAX, _MIN, _GCD = operator.add, max, min, math.gcd


@dataclass(kw_only=True, slots=True)
class SplitTruth:
    """Totals over the valid rows of a split, 0 without rows. Lengths are runtime tokens with alignment padding.

    A sequence is padded if its last input is EOS: then the host's logical length is less than the physical length.
    If EOS is unknown, no sequence counts as padded.
    """

    split: str = ""  #: name of the split
    is_complete: bool = True  #: whether every row was read and is valid
    num_rows: int = _total(_SUM)  #: valid rows
    num_sequences: int = _total(_SUM)  #: sequences in them
    num_tokens: int = _total(_SUM)  #: runtime tokens
    num_trained_tokens: int = _total(_SUM)  #: ones of the stored mask
    num_after_eos: int = _total(
        _SUM
    )  #: of them those whose input is EOS: Megatron-Bridge 0.7 trains them, 0.6 does not
    min_effective_tokens_per_row: int = _total(_MIN)  #: minimum number of labels that the host trains in a row
    min_runtime_length: int = _total(_MIN)  #: shortest sequence
    max_runtime_length: int = _total(_MAX)  #: longest sequence
    #: greatest common divisor of all sequence lengths: every multiple that they are padded to divides it
    runtime_length_gcd: int = _total(_GCD)
    max_sequences_per_row: int = _total(_MAX)  #: maximum number of sequences in a row
    min_row_width: int = _total(_MIN)  #: narrowest row
    max_row_width: int = _total(_MAX)  #: widest row
    #: rows that, padded to packed_sequence_size, have cu_seqlens and cu_seqlens_padded that differ in the last entry
    #: only: full rows with only the last sequence padded, and narrower rows without a padded sequence. 0 if
    #: packed_sequence_size or EOS is unknown.
    num_blind_rows: int = _total(_SUM)
    max_token_id: int = _total(_MAX)  #: largest token id
    max_alignment_tokens: int = _total(_SUM)  #: maximum possible padding: untrained EOS ids at the end of sequences
    num_misaligned_runtime: int = _total(_SUM)  #: sequences whose runtime length is not a multiple of pad_seq_to_mult
    num_misaligned_stored: int = _total(_SUM)  #: sequences whose stored length is not a multiple of it
    num_trained_eos: int = _total(_SUM)  #: trained labels that are EOS
    num_fully_trained: int = _total(_SUM)  #: sequences that train every label except the padding
    num_trained_ends: int = _total(_SUM)  #: runs of trained positions, counted by their last position
    num_trained_ends_on_eos: int = _total(_SUM)  #: runs whose last position has EOS as input
    #: token at the first position of a run that begins inside a sequence -> number of runs
    trained_begins: Counter[int] = field(default_factory=Counter)
    before_trained: Counter[int] = field(default_factory=Counter)  #: token one position before such a run -> runs
    #: token other than EOS -> number of sequences that end with it at least twice, untrained
    repeated_tails: Counter[int] = field(default_factory=Counter)

    @property
    def mean_row_width(self) -> float:
        """Mean runtime tokens of a row; 0 without rows."""
        return self.num_tokens / self.num_rows if self.num_rows else 0.0

    def merge(self, part: SplitTruth) -> None:
        """Add the totals of other rows of the split."""
        self.is_complete &= part.is_complete
        if not part.num_rows:
            return
        is_first = not self.num_rows
        for name, grow in _GROW.items():
            value = getattr(part, name)
            setattr(self, name, value if is_first else grow(getattr(self, name), value))
        self.trained_begins.update(part.trained_begins)
        self.before_trained.update(part.before_trained)
        self.repeated_tails.update(part.repeated_tails)


_GROW = {item.name: item.metadata["grow"] for item in fields(SplitTruth) if "grow" in item.metadata}


def truth_of(rows: Rows) -> SplitTruth:
    """Return the totals over one batch of at least one row."""
    totals = {**_lengths(rows), **_training(rows), **_alignment(rows), **_boundaries(rows)}
    plain: dict[str, Any] = {name: int(value) for name, value in totals.items()}
    truth = SplitTruth(**plain)
    _count_trained_runs(rows, truth)
    _count_repeated_tails(rows, truth)
    return truth


def _lengths(rows: Rows) -> dict[str, Any]:
    lengths, widths = rows.runtime_lengths, rows.row_widths
    return {
        "num_rows": rows.num_rows,
        "num_sequences": len(rows.starts),
        "num_tokens": widths.sum(),
        "min_runtime_length": lengths.min(),
        "max_runtime_length": lengths.max(),
        "runtime_length_gcd": np.gcd.reduce(lengths),
        "max_sequences_per_row": rows.sequences_per_row.max(),
        "min_row_width": widths.min(),
        "max_row_width": widths.max(),
        "max_token_id": max(rows.input_ids.max(), 0),
    }


def _training(rows: Rows) -> dict[str, Any]:
    trained_per_row, effective = rows.per_row(rows.trained_per_sequence), rows.per_row(rows.effective_per_sequence)
    num_after_eos = rows.after_eos_per_sequence.sum()
    inside = rows.eos_positions[rows.eos_positions > 0]
    return {
        "num_trained_tokens": trained_per_row.sum(),
        "num_after_eos": num_after_eos,
        "min_effective_tokens_per_row": effective.min(),
        "num_trained_eos": np.count_nonzero(rows.is_trained[inside - 1]),
    }


def _alignment(rows: Rows) -> dict[str, Any]:
    multiple = rows.context.pad_seq_to_mult or 1
    padding = _most_padding(rows, multiple)
    is_fully_trained = rows.trained_per_sequence >= rows.runtime_lengths - padding
    return {
        "max_alignment_tokens": padding.sum(),
        "num_misaligned_runtime": np.count_nonzero(rows.runtime_lengths % multiple),
        "num_misaligned_stored": np.count_nonzero((rows.runtime_lengths + 1) % multiple),
        "num_fully_trained": np.count_nonzero(is_fully_trained & (rows.trained_per_sequence > 0)),
    }


def _boundaries(rows: Rows) -> dict[str, Any]:
    """Return the number of rows whose logical and physical boundaries differ in the last entry only.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn): trailing EOS inputs are stripped from each
    sequence for cu_seqlens; the rest of the row is one more sequence of logical length 0.
    """
    eos, size = rows.context.eos_token_id, rows.context.packed_sequence_size
    if eos is None or not size:
        return {}
    is_padded = rows.input_ids[rows.sequence_end - 2] == eos
    num_padded = rows.per_row(is_padded.astype(np.int64))
    is_end_padded = (num_padded == 1) & is_padded[rows.start_offsets[1:] - 1]
    return {"num_blind_rows": np.count_nonzero(np.where(rows.row_widths < size, num_padded == 0, is_end_padded))}


def _count_trained_runs(rows: Rows, truth: SplitTruth) -> None:
    mask = rows.is_trained
    begins = np.flatnonzero(mask[1:] > mask[:-1]) + 1
    begins = begins[begins != rows.sequence_begin[rows.sequence_of(begins)]]
    ends = np.flatnonzero(mask[:-1] > mask[1:])
    truth.trained_begins = _count_tokens(rows.input_ids[begins])
    truth.before_trained = _count_tokens(rows.input_ids[begins - 1])
    truth.num_trained_ends = len(ends)
    if rows.context.eos_token_id is not None:
        truth.num_trained_ends_on_eos = int(np.count_nonzero(rows.input_ids[ends] == rows.context.eos_token_id))


def _count_repeated_tails(rows: Rows, truth: SplitTruth) -> None:
    if rows.context.eos_token_id is None:
        return
    ends = rows.sequence_end[rows.runtime_lengths >= 2]
    tokens = rows.input_ids[ends - 1]
    is_repeated = (tokens == rows.input_ids[ends - 2]) & (tokens != rows.context.eos_token_id)
    is_untrained = (rows.is_trained[ends - 2] == 0) & (rows.is_trained[ends - 3] == 0)
    truth.repeated_tails = _count_tokens(tokens[is_repeated & is_untrained])


def _count_tokens(tokens: npt.NDArray[Any]) -> Counter[int]:
    values, counts = np.unique(tokens, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _most_padding(rows: Rows, multiple: int) -> IntArray:
    """Return the maximum padding of each sequence; shape [num_sequences], int64.

    That is the number of EOS ids at its end, at most `multiple` - 1, without the first if it is a trained label.
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
