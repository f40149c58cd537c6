"""Writes the same packed rows with Megatron-Bridge's own writer and with ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.full_rows import batch_of
from bridgepack.data.shards.write import write_shard


def write_both(folder: Path, ids: Any, size: int, upstream: str, bridgepack: str) -> None:
    """Write full rows of these ids to two files; upstream's writer runs in a process of its own."""
    folder.mkdir(parents=True)
    np.save(folder / "ids.npy", ids)
    command = [sys.executable, "-m", "benchlib.read_files", str(folder / "ids.npy"), str(size), str(folder / upstream)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    write_shard(folder / bridgepack, iter([batch_of(ids, size)]), packed_sequence_size=size)


def main() -> None:
    """Write rows as upstream does it."""
    from benchlib.upstream_modules import install

    path, size, target = sys.argv[1:]
    install()
    from megatron.bridge.data.packing.parquet import write_packed_parquet

    batch = batch_of(np.load(path), int(size))
    rows = [batch.row(index) for index in range(batch.num_rows)]
    write_packed_parquet(
        [
            {
                "input_ids": row.input_ids.tolist(),
                "loss_mask": row.loss_mask.tolist(),
                "seq_start_id": row.seq_start_id.tolist(),
            }
            for row in rows
        ],
        target,
    )


if __name__ == "__main__":
    main()
