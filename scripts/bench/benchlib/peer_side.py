"""Measures other projects' packing, where they are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchlib.settings import PACKED_SEQUENCE_SIZE
from benchlib.side import timed
from bridgepack.data.store.token_file import TokenFiles


def seqpacker_plan(lengths: str, size: int, algorithm: str) -> dict[str, Any]:
    """Return what `seqpacker` takes for arrays in and arrays out."""
    import seqpacker

    runtime_lengths, found = np.load(lengths), {}
    packer = seqpacker.Packer(capacity=size, strategy=algorithm)
    with timed(found):
        _, offsets = packer.pack_flat(runtime_lengths)
    return {**found, "num_packs": len(offsets)}


def lightbinpack_plan(lengths: str, size: int, algorithm: str) -> dict[str, Any]:
    """Return what `lightbinpack` takes for a list of lengths."""
    import lightbinpack

    sequence_lengths: list[int] = np.load(lengths).tolist()
    found: dict[str, Any] = {}
    with timed(found):
        packs = getattr(lightbinpack, algorithm)(sequence_lengths, size)
    return {**found, "num_packs": len(packs)}


def trl_pack(folder: str, output: str) -> dict[str, Any]:  # noqa: ARG001 (it writes no file)
    """Return what TRL's best-fit decreasing takes from an Arrow table to packed rows in memory; it has no writer."""
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    paths = sorted(Path(folder).glob("*.tokens"))
    arrays = [TokenFiles(paths).arrays(position) for position in range(len(paths))]
    stored = np.load(Path(folder) / "lengths.npy")
    offsets = pa.array(np.concatenate(([0], np.cumsum(stored))).astype(np.int32))
    columns = {
        "input_ids": np.concatenate([one.input_ids for one in arrays]),
        "loss_mask": np.concatenate([one.loss_mask for one in arrays]),
    }
    table = pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()})
    found: dict[str, Any] = {}
    with timed(found):
        packed = _pack_bfd(table, PACKED_SEQUENCE_SIZE + 1)
    return {**found, "num_packs": packed.num_rows}
