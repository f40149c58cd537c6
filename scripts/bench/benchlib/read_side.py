"""Measures the real GPTSFTPackedParquetDataset of Megatron-Bridge on one file."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchlib.side import timed
from benchlib.upstream_modules import install

_PRIVATE = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)
_SETTINGS = {"prompt_template": "{input} {output}", "label_key": "output", "truncation_field": "input"}
_TOKENIZER = SimpleNamespace(eod=0, eos_id=0, eos_token_id=0, pad_id=0, space_sensitive=False)


def read(path: str, num_random: int) -> dict[str, Any]:
    """Return what opening a file takes, and drawing rows in random order and in the order of the file."""
    install()
    import pyarrow.parquet as pq
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    found: dict[str, Any] = {"num_row_groups": pq.read_metadata(path).num_row_groups, "opening_num": 1}
    found["num_bytes"] = Path(path).stat().st_size
    before = _private_bytes()
    with timed(found, "opening_"):
        dataset = GPTSFTPackedParquetDataset(path, _TOKENIZER, **_SETTINGS)
        dataset._ensure_reader(0)
    found["footer_bytes"] = _private_bytes() - before
    rows = range(len(dataset))
    shuffled = np.random.default_rng(0).permutation(rows)[:num_random].tolist()
    for prefix, order in (("random_", shuffled), ("ordered_", rows)):
        with timed(found, prefix):
            num_tokens = sum(len(dataset[row]["input_ids"]) for row in order)
        found |= {f"{prefix}num": len(order), f"{prefix}tokens": num_tokens}
    return found


def _private_bytes() -> int:
    found = _PRIVATE.search(Path("/proc/self/status").read_text(encoding="utf-8"))
    return 1024 * int(found[1]) if found else 0
