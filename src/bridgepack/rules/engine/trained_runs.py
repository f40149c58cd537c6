"""Samples the tokens at which runs of trained positions begin and end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bridgepack.rules.engine.rows import SoundRows


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


#: Runs kept of one part, and of a split: the first ones.
MAX_RUNS_PER_PART = 1 << 14
MAX_RUNS = 1 << 16


@dataclass(kw_only=True, slots=True)
class RunSample:
    """Accumulator of `TrainedRuns`: `add` each batch of a part, `merge` parts in their order, then `runs`.

    Attributes:
        first: token at each run's first position, in chunks; integers.
        before: token one position earlier, in chunks; integers.
        ends_on_eos: whether a run's last position holds EOS, in chunks.
    """

    first: list[npt.NDArray[np.integer]] = field(default_factory=list)
    before: list[npt.NDArray[np.integer]] = field(default_factory=list)
    ends_on_eos: list[npt.NDArray[np.bool_]] = field(default_factory=list)

    def add(self, rows: SoundRows) -> None:
        """Take in one batch."""
        if min(_num_in(self.first), _num_in(self.ends_on_eos)) >= MAX_RUNS_PER_PART:
            return
        mask = rows.is_trained
        begins = np.flatnonzero((mask[1:] != 0) & (mask[:-1] == 0)) + 1
        is_inside = np.ones(len(mask), dtype=np.bool_)
        is_inside[rows.sequence_begin] = False
        begins = begins[is_inside[begins]][: MAX_RUNS_PER_PART - _num_in(self.first)]
        ends = np.flatnonzero((mask[:-1] != 0) & (mask[1:] == 0))[: MAX_RUNS_PER_PART - _num_in(self.ends_on_eos)]
        self.first.append(rows.input_ids[begins])
        self.before.append(rows.input_ids[begins - 1])
        eos = rows.context.eos_token_id
        self.ends_on_eos.append(np.zeros(len(ends), np.bool_) if eos is None else rows.input_ids[ends] == eos)

    def merge(self, later: RunSample) -> None:
        """Take in the sample of the part that follows, as far as there is room."""
        room = MAX_RUNS - _num_in(self.first)
        for mine, others in ((self.first, later.first), (self.before, later.before)):
            mine += _first_of(others, room)
        self.ends_on_eos += _first_of(later.ends_on_eos, MAX_RUNS - _num_in(self.ends_on_eos))

    def runs(self) -> TrainedRuns:
        """Return what was sampled."""
        num_ends = _num_in(self.ends_on_eos)
        num_on_eos = sum(int(np.count_nonzero(chunk)) for chunk in self.ends_on_eos)
        return TrainedRuns(
            num_runs=_num_in(self.first),
            first_fraction=_modal_fraction(self.first),
            before_fraction=_modal_fraction(self.before),
            ends_on_eos_fraction=num_on_eos / max(num_ends, 1),
        )


def _num_in[A: np.generic](chunks: list[npt.NDArray[A]]) -> int:
    return sum(len(chunk) for chunk in chunks)


def _first_of[A: np.generic](chunks: list[npt.NDArray[A]], num_values: int) -> list[npt.NDArray[A]]:
    """Return chunks with the first values; none once `num_values` are taken."""
    kept = []
    for chunk in chunks:
        if num_values > 0 and len(chunk):
            kept.append(chunk[:num_values])
            num_values -= len(kept[-1])
    return kept


def _modal_fraction(chunks: list[npt.NDArray[np.integer]]) -> float:
    tokens = np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int64)
    if not len(tokens):
        return 0.0
    return float(np.unique(tokens, return_counts=True)[1].max() / len(tokens))
