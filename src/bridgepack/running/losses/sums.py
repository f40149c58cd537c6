"""Sums of losses and trained tokens on the device: three small kernels a micro batch, and no synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgepack.running.losses.packs import Doubt, Segments

if TYPE_CHECKING:
    import torch

#: Rows behind those of the sources: what belongs to none, and (micro batches in doubt, ranks that gave up).
_EXTRA_ROWS = 2


@dataclass(kw_only=True, slots=True)
class Call:
    """One micro batch of the last stage's last chunk."""

    segments: Segments | Doubt | None  #: None if none of its tokens is trained
    by_sequence: torch.Tensor | None = None  #: [num_sequences + 1, 2], float64; None of a batch in doubt
    by_source: torch.Tensor | None = None  #: [num_sources + 1, 2], float64: loss and trained tokens, at last of none


def sum_losses(call: Call, losses: torch.Tensor, mask: torch.Tensor, *, num_sources: int, num_ranks: int) -> None:
    """Add the sums of a micro batch to its call.

    A context-parallel rank has the same share of every sequence, in one piece: offsets [0 4 12] on 2 ranks are
    [0 2 6] in each rank's slice.

    Args:
        call: the micro batch.
        losses: of this rank's tokens; shape [num_tokens].
        mask: weights of these tokens; shape [num_tokens].
        num_sources: sources of the split.
        num_ranks: context-parallel ranks.
    """
    import torch

    values = ((losses * mask).double(), mask.double())
    by_source = torch.zeros(num_sources + 1, 2, dtype=torch.float64, device=losses.device)
    segments = call.segments
    if isinstance(segments, Segments) and len(losses) * num_ranks != segments.num_tokens:
        segments = call.segments = Doubt(
            reason=f"a rank has the losses of {len(losses)} tokens of {segments.num_tokens}, where {num_ranks} "
            "context-parallel ranks share them"
        )
    if not isinstance(segments, Segments):
        by_source[-1] = torch.stack([column.sum() for column in values])
    else:
        lengths = np.diff(segments.ends // num_ranks, prepend=0, append=len(losses))
        on_device = torch.from_numpy(lengths).to(losses.device, non_blocking=True)
        sources = torch.from_numpy(np.append(segments.sources, num_sources).astype(np.int64))
        # with the size of the result, it does not wait for the device
        sequences = torch.repeat_interleave(on_device, output_size=len(losses))
        sums = torch.zeros(2, len(lengths), dtype=torch.float64, device=losses.device)
        for row, column in zip(sums, values, strict=True):  # one at a time is twice as fast on a CPU
            row.index_add_(0, sequences, column)
        call.by_sequence = sums.T
        by_source.index_add_(0, sources.to(losses.device, non_blocking=True), call.by_sequence)
    call.by_source = by_source


def reported_sums(result: Any, *, num_sources: int) -> torch.Tensor | None:
    """Return what a loss function reports as `lm loss`, in the last row of a table; None if it reports none."""
    import torch

    report = result[2] if isinstance(result, tuple) and len(result) == 3 else None
    sums = report.get("lm loss") if isinstance(report, dict) else None
    if not isinstance(sums, torch.Tensor) or sums.numel() != 2:
        return None
    by_source = torch.zeros(num_sources + 1, 2, dtype=torch.float64, device=sums.device)
    by_source[-1] = sums.detach().reshape(-1)
    return by_source


@dataclass(kw_only=True, slots=True)
class Interval:
    """Sums since the last report."""

    num_sources: int
    first_step: int | None = None  #: as the host logs it, from 1; None while it has none
    table: torch.Tensor | None = None  #: [num_sources + 1, 2], float64
    num_doubts: int = 0
    doubt: str = ""  #: reason of the first

    def add(self, calls: list[Call], *, step: int) -> None:
        """Add the micro batches of a step."""
        self.first_step = step if self.first_step is None else self.first_step
        tables = [call.by_source for call in calls if call.by_source is not None]
        for table in tables:
            self.table = table if self.table is None else self.table + table
        for call in calls:
            if isinstance(call.segments, Doubt):
                self.num_doubts += 1
                self.doubt = self.doubt or f"step {step}: {call.segments.reason}"

    def reduce(self, group: Any, device: Any, *, has_failed: bool) -> torch.Tensor:
        """Return the sums of all ranks of a group; shape [num_sources + 2, 2]; a collective of all of them.

        The last row has the micro batches in doubt, and the ranks that gave up.
        """
        import torch
        import torch.distributed as dist

        total = torch.zeros(self.num_sources + _EXTRA_ROWS, 2, dtype=torch.float64, device=device)
        if self.table is not None and not has_failed:
            total[:-1] = self.table
        total[-1] = torch.tensor([float(self.num_doubts), float(has_failed)], dtype=torch.float64)
        dist.all_reduce(total, group=group)
        return total
