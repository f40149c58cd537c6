"""Sums of losses and trained tokens on the device: a few small kernels a micro batch, and no synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bridgepack.running.losses.packs import Doubt, Segments

if TYPE_CHECKING:
    import torch

#: Rows behind those of the sources: what belongs to none, and (micro batches in doubt, ranks that gave up).
_EXTRA_ROWS = 2


@dataclass(kw_only=True, slots=True)
class Call:
    """One micro batch of the last stage's last chunk."""

    segments: Segments | Doubt | None  #: None if none of its tokens is trained
    #: loss and trained tokens of each sequence, at last of what belongs to none, and in doubt only that;
    #: shape [num_sequences + 1, 2], float64
    sums: torch.Tensor | None = None

    def sources(self, num_sources: int) -> npt.NDArray[np.int64]:
        """Return the source of each of the sums, `num_sources` for what belongs to none; shape [num_sequences + 1]."""
        sequences = self.segments.sources if isinstance(self.segments, Segments) else ()
        return np.array([*sequences, num_sources], dtype=np.int64)


def sum_losses(call: Call, losses: torch.Tensor, mask: torch.Tensor, *, num_ranks: int) -> None:
    """Add the sums of a micro batch to its call.

    A context-parallel rank has the same share of every sequence, in one piece: offsets [0 4 12] on 2 ranks are
    [0 2 6] in each rank's slice.

    Args:
        call: the micro batch.
        losses: of this rank's tokens; shape [num_tokens].
        mask: weights of these tokens; shape [num_tokens].
        num_ranks: context-parallel ranks.
    """
    import torch

    segments = call.segments
    if isinstance(segments, Segments) and len(losses) * num_ranks != segments.num_tokens:
        segments = call.segments = Doubt(
            reason=f"a rank has the losses of {len(losses)} tokens of {segments.num_tokens}, where {num_ranks} "
            "context-parallel ranks share them"
        )
    ends: npt.ArrayLike = segments.ends // num_ranks if isinstance(segments, Segments) else ()
    lengths = torch.from_numpy(np.diff(ends, prepend=0, append=len(losses)).astype(np.int64))
    weights = mask.double()
    # without the check of lengths, it does not wait for the device; one column at a time is ten times as fast on a CPU
    options = {"lengths": lengths.to(losses.device, non_blocking=True), "unsafe": True}
    columns = (losses.double() * weights, weights)
    call.sums = torch.stack([torch.segment_reduce(column, "sum", **options) for column in columns], dim=1)


def reported_sums(result: Any) -> torch.Tensor | None:
    """Return what a loss function reports as `lm loss`, as sums that belong to no source; None if it reports none."""
    import torch

    report = result[2] if isinstance(result, tuple) and len(result) == 3 else None
    sums = report.get("lm loss") if isinstance(report, dict) else None
    if not isinstance(sums, torch.Tensor) or sums.numel() != 2:
        return None
    return sums.detach().reshape(1, 2).double()


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
        import torch

        self.first_step = step if self.first_step is None else self.first_step
        sums = [call.sums for call in calls if call.sums is not None]
        if sums:
            numbers = [call.sources(self.num_sources) for call in calls if call.sums is not None]
            sources = torch.from_numpy(np.concatenate(numbers)).to(sums[0].device, non_blocking=True)
            if self.table is None:
                self.table = sums[0].new_zeros(self.num_sources + 1, 2)
            self.table.index_add_(0, sources, torch.cat(sums))
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
