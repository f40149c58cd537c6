"""What the rows of a split really hold; rules compare claims with it. `totals` computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedRuns:
    """Tokens where runs of trained positions begin and end, over the first runs of a split's parts.

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
