"""Digests of sequences, whatever order they are in."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def digest_of(ids: Any, mask: Any, lengths: Any) -> str:
    """Return one digest of all sequences with their masks: of the sorted digests of each."""
    ids, mask = np.ascontiguousarray(ids, dtype=np.int32), np.ascontiguousarray(mask, dtype=np.int8)
    ends = np.cumsum(lengths).tolist()
    each = []
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        digest = hashlib.sha256(ids[start:stop].data)
        digest.update(mask[start:stop].data)
        each.append(digest.digest())
    return hashlib.sha256(b"".join(sorted(each))).hexdigest()
