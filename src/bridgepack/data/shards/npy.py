"""Packed rows in the `.npy` object arrays of megatron-bridge 0.3: reads them without running code in their pickle.

A pickle cannot be read in part: a file is loaded whole, once for its facts and once for its rows, and takes about ten
times as much memory as disk space. The host does the same on every rank. Writing takes bounded memory: `numpy.save`
would hold every token of a split as a Python object at once, so the pickle is written row by row.
"""

import codecs
import pickle
import re
import tokenize
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt

from bridgepack.data.shards.row_groups import one_line, row_batch
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray
from bridgepack.records import LOSS_MASK, ROW_COLUMNS, RowBatch, ShardFacts

NPY = "npy"
NPY_SUFFIX = ".npy"

#: Maximum bytes of a header; numpy writes 118.
_MAX_HEADER_BYTES = 10_000
_NUMBER = re.compile(r"[<>|=][biuf][1248]")
#: Errors that reading a damaged or crafted file can raise, apart from a forbidden name.
_UNREADABLE = (
    *(OSError, SyntaxError, tokenize.TokenError, pickle.UnpicklingError, EOFError, ValueError, TypeError),
    *(AttributeError, LookupError, ArithmeticError, MemoryError, RecursionError),
)
_WHOLE = frozenset({int, bool})

Row = dict[str, Any]
#: The newest protocol without frames, so that parts can be concatenated.
_PROTOCOL = 3
#: Every numpy version knows this name, and the host's restricted unpickler allows it.
_RECONSTRUCT = pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n"
#: Version of an array's pickled state; numpy has only ever written this one.
_STATE_VERSION = 1


class _LayoutError(Exception):
    """A file is readable, but does not hold an array of dicts of lists of numbers."""


class _ForbiddenGlobalError(Exception):
    """A pickle imports `name`, e.g. `os.system`, which lists, dicts and arrays of numbers do not need; not run."""

    def __init__(self, name: str) -> None:
        super().__init__(f"its pickle imports {name}, which bridgepack does not run")
        self.name = name


def read_npy_facts(path: Path, name: str) -> ShardFacts:
    """Return facts about a `.npy` file; a broken or unsafe file, or one of another layout, is a fact, not an error."""
    if not path.is_file():
        return ShardFacts(path=name, exists=False, format=NPY)
    facts = ShardFacts(path=name, exists=True, num_bytes=path.stat().st_size, format=NPY)
    try:
        rows = _load_rows(path)
        columns, value_types = _survey(rows)
    except _ForbiddenGlobalError as error:
        return replace(facts, read_error=str(error), forbidden_globals=(error.name,))
    except _LayoutError as error:
        return replace(facts, read_error=str(error), layout_error=str(error))
    except _UNREADABLE as error:
        return replace(facts, read_error=one_line(error))
    return replace(facts, columns=columns, num_rows=len(rows), value_types=value_types)


def iter_npy_batches(path: Path, name: str, *, max_tokens: int) -> Iterator[RowBatch]:
    """Yield a file's rows, like `iter_row_groups`.

    Raises:
        ArtifactError: the file cannot be read completely, or a row is not a dict of lists of numbers.
    """
    try:
        rows = _load_rows(path)
        columns = [_flat(rows, key) for key in ROW_COLUMNS]
    except (_ForbiddenGlobalError, _LayoutError, *_UNREADABLE) as error:
        raise ArtifactError(f"{name} cannot be read from pack 0 on: {one_line(error)}.") from None
    first, ends = 0, columns[0][1]
    while first < len(rows):
        stop = max(int(np.searchsorted(ends, ends[first] + max_tokens, side="right")) - 1, first + 1)
        part = [(values[cuts[first] : cuts[stop]], cuts[first : stop + 1] - cuts[first]) for values, cuts in columns]
        yield row_batch(name, first, part)
        first = stop


class _Dtype:
    """Stand-in for a numpy dtype, as pickled. numpy's own dtype crashes the process for some damaged pickles."""

    def __init__(self, text: object = "", *_: object) -> None:
        self._text = text
        self._byte_order: object = "|"

    def __setstate__(self, state: Any) -> None:
        self._byte_order = state[1]

    def numbers(self, data: bytes, count: int) -> list[Any]:
        """Return bytes as Python numbers; raises ValueError if they are not numbers, or too few."""
        name = f"{self._byte_order}{self._text}"
        if not _NUMBER.fullmatch(name):
            raise ValueError(f"an array of {str(self._text)[:40]} does not hold plain numbers")
        values: list[Any] = np.frombuffer(data, name, count=count).tolist()
        return values


class _Array:
    """Stand-in for a numpy array: shape, dtype, and the bytes of its numbers or a list of its objects."""

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = _Dtype()
        self.data: Any = b""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, _, self.data = state
        if not isinstance(shape, tuple) or not isinstance(dtype, _Dtype):
            raise ValueError("an array was not pickled by numpy")
        self.shape, self.dtype = shape, dtype

    def numbers(self) -> list[Any]:
        """Return its elements as Python numbers; raises ValueError if it is not one-dimensional."""
        if len(self.shape) != 1:
            raise ValueError(f"an array has shape {self.shape}; it must have one dimension")
        return self.dtype.numbers(self.data, self.shape[0])


class _RowUnpickler(pickle.Unpickler):
    """Unpickler that imports only names that rows can need and that the host's own unpickler allows.

    A crafted file can make it use much memory, like `pickle`, but cannot make it run code.
    Source: megatron-bridge 0.6.2, utils/safe_pickle.py (_NumpyRestrictedUnpickler).
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _ForbiddenGlobalError(f"{module}.{name}") from None


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, data: bytes) -> Any:
    return dtype.numbers(data, 1)[0]


_BUILTINS = (list, dict, tuple, set, frozenset, bytes, str, int, float, bool, complex)
_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        **{("builtins", kind.__name__): kind for kind in _BUILTINS},
        ("collections", "OrderedDict"): OrderedDict,
        ("_codecs", "encode"): codecs.encode,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
        **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    }
)


def _load_rows(path: Path) -> list[Row]:
    with path.open("rb") as stream:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
        if dtype != np.dtype(object):
            raise _LayoutError(f"an array of {dtype}, shape {shape}; Megatron-Bridge needs an object array of dicts")
        array = _RowUnpickler(stream).load()
    if not isinstance(array, _Array) or not isinstance(array.data, list):
        raise _LayoutError(f"its pickle holds {_kind(array)}, not an object array")
    if array.shape != (len(array.data),):
        raise _LayoutError(f"an array of shape {array.shape}; Megatron-Bridge needs one dimension")
    for number, row in enumerate(array.data):
        if not isinstance(row, dict):
            raise _LayoutError(f"pack {number} is {_kind(row)}, not a dict")
    return array.data


def _survey(rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return (type of each column that all rows have; column -> types of its values that are not lists)."""
    columns: dict[str, str] = {}
    types_of: dict[str, tuple[str, ...]] = {}
    for key in ROW_COLUMNS:
        present = [(number, row[key]) for number, row in enumerate(rows) if key in row]
        kinds: set[type] = set()
        for number, value in present:
            values = _elements(value, number, key)
            kinds |= {_type_of(item) for item in values} if key == LOSS_MASK else set(map(type, values))
        if len(present) == len(rows):
            columns[key] = _list_type(kinds)
        if no_lists := {_kind(value) for _, value in present if not isinstance(value, list)}:
            types_of[key] = tuple(sorted(no_lists))
    return columns, types_of


def _type_of(item: Any) -> type:
    """Return the type of a mask's element, where 1.0 counts as 1."""
    return int if type(item) is float and item.is_integer() else type(item)


def _elements(value: Any, number: int, key: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    if not isinstance(value, _Array):
        raise _LayoutError(f"pack {number} {key} is {_kind(value)}, not a list")
    try:
        return value.numbers()
    except (ValueError, TypeError) as error:
        raise _LayoutError(f"pack {number} {key}: {error}") from None


def _list_type(elements: set[type]) -> str:
    """Return the Arrow type of a column with elements of these types: {int, bool} -> `list<element: int64>`."""
    if elements <= _WHOLE:
        return "list<element: int64>"
    if elements <= {*_WHOLE, float}:
        return "list<element: double>"
    return f"list<element: {min(kind.__name__ for kind in elements - _WHOLE - {float})}>"


def _kind(value: object) -> str:
    if isinstance(value, _Array):
        return "numpy.ndarray"
    return "None" if value is None else type(value).__name__


def _flat(rows: Sequence[Row], key: str) -> tuple[npt.NDArray[Any], IntArray]:
    """Return (values, int64 offsets) of one column."""
    lists = [_elements(row.get(key), number, key) for number, row in enumerate(rows)]
    offsets: IntArray = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    if offsets[-1] == 0:
        return np.empty(0, dtype=np.int64), offsets
    values: npt.NDArray[Any] = np.array(list(chain.from_iterable(lists)))
    if values.dtype == np.bool_:
        values = values.astype(np.int8)
    if values.ndim != 1 or not (values.dtype.kind == "i" or (key == LOSS_MASK and values.dtype.kind == "f")):
        raise _LayoutError(f"an element of {key} is not a 64-bit integer")
    return values, offsets
