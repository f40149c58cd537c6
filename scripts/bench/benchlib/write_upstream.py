"""Measures how Megatron-Bridge plans, fills and writes sequences that are in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchlib.settings import FIRST_FIT_SHUFFLE, PACKED_SEQUENCE_SIZE, SEED
from benchlib.side import timed
from benchlib.upstream_modules import install
from bridgepack.data.store.token_file import TokenFiles


def upstream(folder: str, output: str, kind: str) -> dict[str, Any]:
    """Return what filling and writing take; the histogram and packing are measured apart.

    Source: Megatron-Bridge 0.6.2, data/packing/offline.py, prepare_gpt_sft_packed_data.
    """
    install()
    from megatron.bridge.data.packing.algorithms import create_hist, create_packing_strategy, fill_packing_strategy
    from megatron.bridge.data.packing.parquet import write_packed_parquet

    found: dict[str, Any] = {}
    dataset = np.array(list(_samples(Path(folder), is_tensors=kind == "tensors")))
    np.random.seed(SEED)
    with timed(found, "plan_"):
        sequences, histogram = create_hist(dataset, PACKED_SEQUENCE_SIZE)
        packs, _ = create_packing_strategy(histogram, PACKED_SEQUENCE_SIZE, FIRST_FIT_SHUFFLE)
    with timed(found, "fill_"):
        rows = fill_packing_strategy(packs, sequences, PACKED_SEQUENCE_SIZE, 0)
    target = Path(output).with_suffix(".upstream.idx.parquet")
    with timed(found, "write_"):
        write_packed_parquet(rows, target)
    num_bytes = target.stat().st_size
    target.unlink()
    found |= {name: found[f"fill_{name}"] + found[f"write_{name}"] for name in ("seconds", "cpu_s")}
    return {**found, "num_packs": len(packs), "num_bytes": num_bytes}


def _samples(folder: Path, *, is_tensors: bool) -> Any:
    """Yield what upstream's chat data set gives for each row: tensors, or lists where it had to pad."""
    import torch

    files = sorted(folder.glob("*.tokens"))
    tokens = TokenFiles(files)
    for position in range(len(files)):
        for index in range(len(tokens.arrays(position).offsets) - 1):
            ids, mask = tokens.tokens(position, index)
            if is_tensors:
                yield {"input_ids": torch.LongTensor(ids.tolist()), "loss_mask": torch.BoolTensor(mask.tolist())}
            else:
                yield {"input_ids": ids.tolist(), "loss_mask": mask.tolist()}
