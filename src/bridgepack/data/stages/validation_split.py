"""Which training rows are set aside for validation: decided by a hash of a row's origin, the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.order import seeded_hash

_FILE_BITS = 44


def is_set_aside(file_index: int, rows: npt.NDArray[Any], *, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which rows of a file go to validation; shape [num_rows].

    Args:
        file_index: position of the file in the list of inputs.
        rows: 1-based rows of that file.
        fraction: of all rows (0-1).
        seed: of the build.
    """
    if fraction <= 0:
        return np.zeros(len(rows), dtype=np.bool_)
    keys = rows.astype(np.uint64) + np.uint64(file_index << _FILE_BITS)
    chosen: npt.NDArray[np.bool_] = seeded_hash(keys, seed) < np.uint64(int(fraction * 2**64))
    return chosen
