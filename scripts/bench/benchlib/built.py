"""What a build wrote, in a few numbers and digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.digests import digest_of
from bridgepack.data.shards.read import list_shards
from bridgepack.data.shards.row_groups import iter_row_groups

_BATCH_TOKENS = 1 << 24


def describe_built(folder: Path) -> dict[str, Any]:
    """Return packs, tokens, bytes, a digest of the sequences and one of the files."""
    ids, masks, lengths, content = [], [], [], hashlib.sha256()
    num_packs = num_bytes = 0
    for path in list_shards(folder):
        content.update(path.read_bytes())
        num_bytes += path.stat().st_size
        for batch in iter_row_groups(path, path.name, max_tokens=_BATCH_TOKENS):
            num_packs += batch.num_rows
            ids.append(batch.input_ids.astype(np.int32))
            masks.append(batch.loss_mask.astype(np.int8))
            starts = batch.seq_start_id + np.repeat(batch.token_offsets[:-1], np.diff(batch.start_offsets))
            lengths.append(np.diff(np.append(starts, batch.token_offsets[-1])))
    stored = np.concatenate(lengths)
    digest = digest_of(np.concatenate(ids), np.concatenate(masks), stored)
    about = {"num_packs": num_packs, "num_bytes": num_bytes, "num_tokens": int(stored.sum())}
    return {**about, "digest": digest, "files_digest": content.hexdigest()}
