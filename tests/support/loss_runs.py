"""The folder of a run over packs, with losses by source and by row as training leaves them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import entries_of_packs
from bridgepack.records.losses import RowsPart, SourceLoss
from bridgepack.running.losses.lines import append_losses
from bridgepack.running.losses.rows import RowWriter


def write_loss_run(
    folder: Path,
    packs: Path,
    lines: Sequence[SourceLoss],
    *,
    loss_of: Callable[[int, int, int], float],
    num_tokens: int,
) -> None:
    """Write a run of two steps that read every pack at each; `loss_of` takes file, row and step."""
    artifact = Artifact(packs)
    part = RowsPart(fingerprint=artifact.manifest.fingerprint, start=1, first_step=1, ranks=(0,), rank=0, part=1)
    writer = RowWriter(folder=folder / "losses" / "rows", part=part)
    for step in (1, 2):
        numbers = range(artifact.split("training").statistics.num_packs)
        for pack, entries in entries_of_packs(artifact, "training", numbers).items():
            losses = [loss_of(entry.file_index, entry.row, step) for entry in entries]
            writer.places.append(("training", step, 0, pack))
            writer.values.append(np.array([(num_tokens * loss, num_tokens) for loss in losses]))
            writer.num_micro_batches += 1
    writer.write()
    append_losses(folder / "losses", lines)
    (folder / "run.json").write_text(json.dumps({"artifact": str(packs)}))
