"""Measures tokenising a file of chats with bridgepack, and encoding the same texts and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.bridgepack_side import recipe
from benchlib.digests import digest_of
from benchlib.settings import BEST_FIT_DECREASING
from benchlib.side import timed
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.worker_process import ENVIRONMENT

#: As in a build's worker.
_TEXT_BYTES, _MAX_ROW_BYTES = 4 << 20, 32 << 20


def bridgepack(data: str, tokenizer: str, engine: str) -> dict[str, Any]:
    """Return what rows to batches of tokens take; loading the tokenizer and the engine is measured apart."""
    os.environ.update(ENVIRONMENT)
    from bridgepack.data.reading.inputs import InputFile
    from bridgepack.data.reading.ranges import iter_ranges
    from bridgepack.data.reading.rows import read_range
    from bridgepack.data.sequences.loading import load_stage

    found: dict[str, Any] = {}
    values = SFTRecipe.model_validate(recipe(data, tokenizer, BEST_FIT_DECREASING))
    with timed(found, "load_"):
        stage = load_stage(values.model_dump_json(), engine=engine, num_input_bytes=1 << 40)
    assert stage.engine.name == engine, stage.engine.message
    file, batches = InputFile(path=Path(data), label="chats", kind="jsonl"), []
    with timed(found):
        for part in iter_ranges(file, 0, sha256="", max_row_bytes=_MAX_ROW_BYTES):
            rows = read_range(file, part)
            batches += stage.batches(rows, first_row=part.first_row, max_text_bytes=_TEXT_BYTES)
    ids, masks = (np.concatenate([getattr(one, name) for one in batches]) for name in ("input_ids", "loss_mask"))
    lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
    about = {"num": len(ids), "load_s": found["load_seconds"]}
    return {**found, **about, "digest": digest_of(ids, masks, lengths)}


def encode_only(data: str, tokenizer: str) -> dict[str, Any]:
    """Return what `tokenizers` takes for the contents of all messages, joined, with one thread."""
    os.environ.update(ENVIRONMENT)
    import json

    from tokenizers import Tokenizer

    chats = [json.loads(line)["messages"] for line in Path(data).read_text(encoding="utf-8").splitlines()]
    texts = ["\n".join(message["content"] for message in messages) for messages in chats]
    backend, found = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json")), {}
    with timed(found):
        num_tokens = sum(map(len, backend.encode_batch_fast(texts, add_special_tokens=False)))
    return {**found, "num": num_tokens}
