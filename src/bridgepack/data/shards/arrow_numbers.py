"""Converts numbers and texts between numpy and Arrow through shared memory.

`pa.array` and `Array.to_numpy` import pandas if it is installed, which takes half a second.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_array(values: npt.NDArray[Any]) -> Any:
    """Return a one-dimensional numpy array of numbers or booleans as an Arrow array; does not copy numbers."""
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    kept = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(kept.dtype), len(kept), [None, pa.py_buffer(kept)])


def arrow_lists(values: npt.NDArray[Any], offsets: npt.NDArray[np.integer[Any]], kind: Any) -> Any:
    """Return lists of numbers as an Arrow array, without reading their elements.

    Args:
        values: shape [num_values], the elements of all lists, concatenated.
        offsets: shape [num_lists + 1]: list `i` has `values[offsets[i]:offsets[i + 1]]`.
        kind: Arrow type of the lists.
    """
    elements = arrow_array(values.astype(kind.value_type.to_pandas_dtype(), copy=False))
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, ends], children=[elements])


def arrow_text(text: str) -> Any:
    """Return one text as an Arrow array."""
    content = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(content)], np.int32)), pa.py_buffer(content))


def numpy_array(values: Any) -> npt.NDArray[Any]:
    """Return an Arrow array without nulls as a numpy array; does not copy integers and floats."""
    kind = values.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not len(values):
        return np.empty(0, dtype=kind.to_pandas_dtype())
    if not is_number or values.null_count:
        converted: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return converted
    found = np.frombuffer(values.buffers()[1], dtype=kind.to_pandas_dtype(), count=values.offset + len(values))
    return found[values.offset :]
