"""Measures writing bytes and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.side import timed

_BLOCK_BYTES = 4 << 20
#: Of a token: its id in 32 bits, its mask in 8.
_TOKEN_BYTES = 5


def write_rows(folder: str, output: str, num_tokens: int) -> dict[str, Any]:
    """Return what it takes to write and fsync as many bytes as the rows have when nothing compresses them."""
    found: dict[str, Any] = {}
    block = np.load(Path(folder).parent / "pool.npy").tobytes()[:_BLOCK_BYTES]
    num_bytes = num_tokens * _TOKEN_BYTES
    with fresh(output) as target, timed(found), (target / "rows").open("wb", buffering=0) as stream:
        for _ in range(num_bytes // len(block)):
            stream.write(block)
        stream.write(block[: num_bytes % len(block)])
        os.fsync(stream.fileno())
    return {**found, "num_bytes": num_bytes}


@contextmanager
def fresh(output: str) -> Iterator[Path]:
    """Give an empty folder, and take it away afterwards."""
    shutil.rmtree(output, ignore_errors=True)
    Path(output).mkdir(parents=True)
    try:
        yield Path(output)
    finally:
        shutil.rmtree(output)
