"""Keeps the losses of a rank's rows, and writes files of them at checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bridgepack.data.row_losses import MicroBatches, write_part
from bridgepack.records.losses import RowsPart
from bridgepack.running.losses.packs import Segments
from bridgepack.running.losses.sums import Call

if TYPE_CHECKING:
    import torch

#: Micro batches in memory after which a file is written; every rank counts as many.
_MICRO_BATCHES_PER_FILE = 4096


@dataclass(kw_only=True, slots=True)
class RowWriter:
    """Keeps the losses of a rank's rows until a file of them is written."""

    folder: Path
    part: RowsPart  #: of the next file
    num_micro_batches: int = 0  #: since the last file, those without rows included
    places: list[tuple[str, int, int, int]] = field(default_factory=list)  #: split, step, evaluation, pack
    on_device: list[torch.Tensor] = field(default_factory=list)  #: [num_sequences + 1, 2] each, float64, as of a call
    values: list[npt.NDArray[np.float64]] = field(default_factory=list)  #: [num_sequences, 2] each, for earlier places

    def add(self, calls: Sequence[Call], *, split: str, step: int, evaluation: int, num_micro_batches: int) -> None:
        """Keep the rows of a step; `evaluation` counts those of the start, from 1, and is 0 in training."""
        self.num_micro_batches += num_micro_batches
        for call in calls:
            if isinstance(call.segments, Segments) and call.sums is not None:
                self.places.append((split, step, evaluation, call.segments.pack))
                self.on_device.append(call.sums)

    def collect(self) -> None:
        """Move what is on the device into memory; waits for the device."""
        if self.on_device:
            import torch

            sizes = [len(item) for item in self.on_device]
            calls = np.split(torch.cat(self.on_device).cpu().numpy(), np.cumsum(sizes)[:-1])
            self.values += [call[:-1] for call in calls]
            self.on_device.clear()

    @property
    def is_full(self) -> bool:
        """Whether there are enough micro batches for a file."""
        return self.num_micro_batches >= _MICRO_BATCHES_PER_FILE

    def write(self) -> None:
        """Write a file of what is there, or nothing if no micro batch was read since the last.

        Raises:
            OSError: it cannot be written.
        """
        if not self.num_micro_batches:
            return
        self.collect()
        part = self.part
        name = f"rank{part.rank:05d}-{part.start:03d}-{part.part:05d}.parquet"
        write_part(self.folder / name, part, MicroBatches.of(self.places, self.values))
        self.part = replace(part, part=part.part + 1)
        self.num_micro_batches = 0
        self.places.clear()
        self.values.clear()
