"""Reading packed rows through the real loader of Megatron-Bridge."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchlib.read_files import write_both
from benchlib.token_inputs import token_pool
from benchlib.works import OURS, UPSTREAM, Contender, Metric, Work

PART = "read"
#: Packed sequence size -> how many times faster rows in random order shall be.
_SIZES = {4096: 18, 8192: 50}
#: How many rows in random order are read: of upstream's files each takes a whole row group.
_NUM_RANDOM = {UPSTREAM: 200, OURS: 2000}
_ORDERED = Metric(label="in order", prefix="ordered_", asked={UPSTREAM: 0.9})
_OPENING = Metric(label="opening", prefix="opening_")
_FILES = {UPSTREAM: "upstream.idx.parquet", OURS: "bridgepack.idx.parquet"}


def read_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield reading in random and in written order, and opening, of files with the same rows."""
    pool = token_pool(options, scratch)
    for size, asked in _SIZES.items():
        folder = scratch / f"rows-{size}"
        num_rows = max(options.read_tokens // size, 2)
        write_both(folder, np.resize(pool, num_rows * size), size, *_FILES.values())
        contenders = []
        for role, file in _FILES.items():
            given = {"path": str(folder / file), "num_random": _NUM_RANDOM[role]}
            contenders.append(Contender.of("read_side:read", f"file of {role}", role, given))
        name = f"{num_rows:,} packs of {size:,}"
        metrics = (_ORDERED, Metric(label="random order", prefix="random_", asked={UPSTREAM: asked}), _OPENING)
        yield Work(part=PART, name=name, unit="rows", num_items=num_rows, contenders=tuple(contenders), metrics=metrics)
