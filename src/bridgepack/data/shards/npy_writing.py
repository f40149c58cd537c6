"""Writes packed rows as the `.npy` object array of dicts that megatron-bridge 0.3 reads, in bounded memory.

`numpy.save` would hold every token of a split as a Python object at once. The pickle inside the file is written here
row after row instead; what reads it gives the same array.
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

#: The newest without frames, whose parts can stand one after the other.
_PROTOCOL = 3
#: Under this name every numpy finds it, and the host's restricted unpickler allows it.
_RECONSTRUCT = pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n"
#: Of an array's pickled state; numpy has written no other.
_STATE_VERSION = 1


def write_npy_rows(path: Path, batches: Iterable[RowBatch], num_rows: int) -> None:
    """Write rows as one file, whole or not at all; the file's head says how many, and only one batch is held.

    Each is a dict of three lists of integers, `input_ids`, `loss_mask` and `seq_start_id`, as in Parquet.

    Raises:
        ArtifactError: there are more or fewer.
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
            raise ArtifactError(f"{path.name}: {written} rows; {num_rows} are announced. Build the artifact again.")


def _head(num_rows: int) -> bytes:
    """Return the pickle of an object array up to its empty list of elements."""
    begin = pickle.PROTO + bytes([_PROTOCOL]) + _RECONSTRUCT + _pickled((np.ndarray, (0,), b"b"))
    state = map(_pickled, (_STATE_VERSION, (num_rows,), np.dtype(object), False))
    return begin + pickle.REDUCE + pickle.MARK + b"".join(state) + pickle.EMPTY_LIST


def _pickled(value: Any) -> bytes:
    """Return the opcodes that put a value on the stack: a pickle without its first and last one."""
    return pickle.dumps(value, protocol=_PROTOCOL)[2:-1]
