"""Writes packed rows as the `.npy` object array of dicts that megatron-bridge 0.3 reads, in bounded memory.

`numpy.save` would hold every token of a split as a Python object at once. This module writes the pickle in the file
row by row instead; reading it gives the same array.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.lib.format as npy_format

from bridgepack.data.files import replaced_when_whole
from bridgepack.errors import ArtifactError
from bridgepack.records import ROW_COLUMNS, RowBatch

#: The newest protocol without frames, so that parts can be concatenated.
_PROTOCOL = 3
#: Every numpy version knows this name, and the host's restricted unpickler allows it.
_RECONSTRUCT = pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n"
#: Version of an array's pickled state; numpy has only ever written this one.
_STATE_VERSION = 1


def write_npy_rows(path: Path, batches: Iterable[RowBatch], num_rows: int) -> None:
    """Write rows to one file, atomically; holds only one batch in memory, so the header needs `num_rows` first.

    Each row is a dict of three lists of integers, `input_ids`, `loss_mask` and `seq_start_id`, as in Parquet.

    Raises:
        ArtifactError: there are more or fewer rows.
    """
    written = 0
    with replaced_when_whole(path) as temporary, temporary.open("wb") as stream:
        header = {"descr": npy_format.dtype_to_descr(np.dtype(object)), "fortran_order": False, "shape": (num_rows,)}
        npy_format.write_array_header_1_0(stream, header)
        stream.write(_head(num_rows))
        for batch in batches:
            rows = map(batch.row, range(batch.num_rows))
            parts = [_pickled({name: getattr(row, name).tolist() for name in ROW_COLUMNS}) for row in rows]
            stream.write(b"".join([pickle.MARK, *parts, pickle.APPENDS]))
            written += batch.num_rows
        stream.write(pickle.TUPLE + pickle.BUILD + pickle.STOP)
        if written != num_rows:
            raise ArtifactError(f"{path.name}: {written} rows; the manifest says {num_rows}. Build the artifact again.")


def _head(num_rows: int) -> bytes:
    """Return the start of an object array's pickle, up to its empty list of elements."""
    begin = pickle.PROTO + bytes([_PROTOCOL]) + _RECONSTRUCT + _pickled((np.ndarray, (0,), b"b"))
    state = map(_pickled, (_STATE_VERSION, (num_rows,), np.dtype(object), False))
    return begin + pickle.REDUCE + pickle.MARK + b"".join(state) + pickle.EMPTY_LIST


def _pickled(value: Any) -> bytes:
    """Return the opcodes that put a value on the stack: a pickle without its first and last opcode."""
    return pickle.dumps(value, protocol=_PROTOCOL)[2:-1]
