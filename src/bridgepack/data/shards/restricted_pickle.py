"""Unpickles the rows of a `.npy` object array without running anything that the pickle asks for.

The names that megatron-bridge's own unpickler allows and that rows can need are allowed here, and numpy's among them
mean stand-ins: no byte of the file reaches numpy's own unpickling. Any other name stops the reading.

Source: megatron-bridge 0.6.2, utils/safe_pickle.py (_NumpyRestrictedUnpickler).
"""

import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

_NUMBER = re.compile(r"[biuf][1248]")
_BYTE_ORDERS = "<>|="

#: What reading a damaged or crafted pickle can raise, a forbidden name aside.
UNPICKLING_ERRORS = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


class ForbiddenGlobalError(Exception):
    """A pickle asks for `name`, e.g. `os.system`: not for lists, dicts, numbers or arrays of them; it was not run."""

    def __init__(self, name: str) -> None:
        super().__init__(f"its pickle asks for {name}, which is not run")
        self.name = name


class PickledDtype:
    """Stand-in for a numpy dtype: what its pickle says."""

    def __init__(self, text: object = "", *_: object) -> None:
        self._text = text
        self._byte_order: object = "|"

    def __setstate__(self, state: Any) -> None:
        """Take the byte order from numpy's state."""
        self._byte_order = state[1]

    def __str__(self) -> str:
        """Return numpy's short name, e.g. `i8`."""
        return str(self._text)[:40]

    def number_dtype(self) -> npt.DTypeLike:
        """Return the numpy dtype.

        Raises:
            ValueError: it is no plain number.
        """
        text, order = self._text, self._byte_order
        if not (isinstance(text, str) and _NUMBER.fullmatch(text) and isinstance(order, str) and order in _BYTE_ORDERS):
            raise ValueError(f"an array of {self} holds no plain numbers")
        return np.dtype(order + text)


class PickledArray:
    """Stand-in for a numpy array: shape, dtype, and the bytes of its numbers or the list of its objects."""

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = PickledDtype()
        self.data: Any = b""

    def __setstate__(self, state: Any) -> None:
        """Take numpy's state: version, shape, dtype, whether it is in Fortran order, data."""
        _, shape, dtype, _, data = state
        if not isinstance(shape, tuple) or not isinstance(dtype, PickledDtype):
            raise ValueError("an array's pickle is not numpy's")
        self.shape, self.dtype, self.data = shape, dtype, data

    def numbers(self) -> list[Any]:
        """Return its elements as Python numbers.

        Raises:
            ValueError: it has not one dimension, no plain numbers, or fewer bytes than it says.
        """
        if len(self.shape) != 1:
            raise ValueError(f"an array of shape {self.shape} is no list")
        values: list[Any] = np.frombuffer(self.data, self.dtype.number_dtype(), count=self.shape[0]).tolist()
        return values


class RowUnpickler(pickle.Unpickler):
    """Unpickler of an object array: its `load` returns a `PickledArray` whose data are Python lists and dicts.

    A crafted file can make it use much memory, as `pickle` does; it cannot make it run code. What it raises is one of
    `UNPICKLING_ERRORS`, or a ForbiddenGlobalError.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise ForbiddenGlobalError(f"{module}.{name}") from None


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _scalar(dtype: PickledDtype, data: bytes) -> Any:
    """Return a numpy scalar as a Python number."""
    return np.frombuffer(data, dtype.number_dtype(), count=1)[0].item()


def _encode(text: str, encoding: str) -> bytes:
    """Return the bytes that old pickles spell as text; numpy's use no other encoding."""
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"its pickle encodes text as {encoding!r}")
    return text.encode("latin-1")


_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        **{
            ("builtins", kind.__name__): kind
            for kind in (list, dict, tuple, set, frozenset, bytes, str, int, float, bool, complex)
        },
        ("collections", "OrderedDict"): OrderedDict,
        ("_codecs", "encode"): _encode,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): PickledDtype,
        **{
            (module, name): function
            for module in ("numpy.core.multiarray", "numpy._core.multiarray")
            for name, function in (("_reconstruct", _reconstruct), ("scalar", _scalar))
        },
    }
)
