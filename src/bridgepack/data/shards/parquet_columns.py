"""Encodes list columns of integers as Parquet column chunks: no element is ever looked at by itself.

Arrow's writer makes two levels for each element and then looks for runs among them, which takes longer than to
compress the elements. Lists without nulls are nothing but runs, known beforehand: one per list.

Source: Apache Parquet format 2.10, parquet.thrift, Encodings.md, LogicalTypes.md (lists of three levels).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.shards.thrift import TRUE, Value, byte, i32, i64, list_of, struct, text, varint
from bridgepack.geometry import IntArray

#: Elements of a page; a longer list goes on in the next one.
PAGE_VALUES = 1 << 22
_INT32, _ZSTD = 1, 6
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL, _REPEATED = 1, 2
_LIST, _INT_8 = 3, 15
#: Definition level of an element: its list is there, its list has elements, it is no null.
_DEFINED = 3
_FLAGS = np.array([0, 1], dtype="<i4").tobytes()

Compress = Callable[[bytes], bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Which elements a page has, and their levels.

    Attributes:
        levels: repetition and definition levels, encoded.
        first: of its elements, in the row group.
        stop: one past the last.
    """

    levels: bytes
    first: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnChunk:
    """A column of a row group.

    Attributes:
        parts: its bytes, part after part.
        metadata: what the footer says of it.
        num_raw_bytes: of its pages with their headers, uncompressed.
    """

    parts: list[bytes]
    metadata: Value
    num_raw_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ListColumn:
    """A column of lists, none of which is null or empty.

    Attributes:
        name: of the column.
        is_flag: its elements are 0 and 1, int8, kept as one bit each; otherwise int32, kept as they are.
    """

    name: str
    is_flag: bool = False

    def schema(self) -> list[Value]:
        """Return the column's three elements of a Parquet schema."""
        element = {1: i32(_INT32), 3: i32(_OPTIONAL), 4: text("element")}
        if self.is_flag:
            element |= {6: i32(_INT_8), 10: struct({10: struct({1: byte(8), 2: TRUE})})}
        as_list = struct({3: struct({})})
        return [
            struct({3: i32(_OPTIONAL), 4: text(self.name), 5: i32(1), 6: i32(_LIST), 10: as_list}),
            struct({3: i32(_REPEATED), 4: text("list"), 5: i32(1)}),
            struct(element),
        ]

    def chunk(
        self, values: npt.NDArray[Any], pages: Sequence[Page], *, position: int, compress: Compress
    ) -> ColumnChunk:
        """Return the column of a row group.

        Args:
            values: shape [num_values], the elements of all lists.
            pages: what `pages_of` returns for the lists.
            position: of the chunk in its file.
            compress: gives a zstd frame.
        """
        parts, num_raw = _flag_dictionary(compress) if self.is_flag else ((), 0)
        content = list(parts)
        first_page = position + sum(map(len, content))
        for page in pages:
            elements = values[page.first : page.stop]
            body = _bits(elements) if self.is_flag else np.ascontiguousarray(elements, dtype="<i4").data
            raw = b"".join((page.levels, body))
            compressed = compress(raw)
            header = _data_header(len(elements), self._encoding, len(raw), len(compressed))
            content += [header, compressed]
            num_raw += len(header) + len(raw)
        fields = {
            **_fixed_metadata(self.name, self._encoding),
            5: i64(len(values)),
            6: i64(num_raw),
            7: i64(sum(map(len, content))),
            9: i64(first_page),
        }
        if self.is_flag:
            fields[11] = i64(position)
        return ColumnChunk(parts=content, metadata=struct({2: _NONE, 3: struct(fields)}), num_raw_bytes=num_raw)

    @property
    def _encoding(self) -> int:
        return _RLE_DICTIONARY if self.is_flag else _PLAIN


_NONE = i64(0)


def pages_of(offsets: IntArray) -> list[Page]:
    """Return the pages of a row group's lists; shape [num_lists + 1]: list `i` has `offsets[i]:offsets[i + 1]`."""
    starts = offsets[:-1] - offsets[0]
    num_values = int(offsets[-1] - offsets[0])
    if num_values <= PAGE_VALUES:
        return [Page(levels=_levels(starts.tolist(), 0, num_values), first=0, stop=num_values)]
    pages = []
    for first in range(0, num_values, PAGE_VALUES):
        stop = min(first + PAGE_VALUES, num_values)
        inside = starts[np.searchsorted(starts, first) : np.searchsorted(starts, stop)].tolist()
        pages.append(Page(levels=_levels(inside, first, stop), first=first, stop=stop))
    return pages


def _levels(starts: list[int], first: int, stop: int) -> bytes:
    """Return the levels of the elements `first` to `stop - 1`; `starts` has those of them that begin a list.

    A list begins with repetition level 0 and goes on with 1: two runs.
    """
    runs = []
    before = first
    for start in starts:
        runs.append(_goes_on(start - before))
        runs.append(_BEGINS)
        before = start + 1
    runs.append(_goes_on(stop - before))
    repetition = b"".join(runs)
    definition = _run(stop - first, _DEFINED)
    return b"".join((_size(repetition), repetition, _size(definition), definition))


def _run(length: int, value: int) -> bytes:
    return varint(length << 1) + bytes((value,))


_BEGINS = _run(1, 0)


@lru_cache(maxsize=1 << 14)
def _goes_on(length: int) -> bytes:
    return _run(length, 1) if length else b""


def _size(content: bytes) -> bytes:
    return len(content).to_bytes(4, "little")


def _bits(flags: npt.NDArray[Any]) -> bytes:
    """Return flags as positions in the dictionary: the width of one, then one run of groups of eight."""
    packed = np.packbits(flags.astype(np.int8, copy=False).view(np.uint8), bitorder="little")
    return b"".join((b"\1", varint(len(packed) << 1 | 1), packed.data))


@lru_cache(maxsize=1)
def _flag_dictionary(compress: Compress) -> tuple[tuple[bytes, bytes], int]:
    """Return the page that holds 0 and 1, and its bytes with its header when uncompressed."""
    page = compress(_FLAGS)
    about = struct({1: i32(2), 2: i32(_PLAIN)})
    _, header = struct({1: i32(_DICTIONARY_PAGE), 2: i32(len(_FLAGS)), 3: i32(len(page)), 7: about})
    return (header, page), len(header) + len(_FLAGS)


def _data_header(num_values: int, encoding: int, num_raw: int, num_bytes: int) -> bytes:
    about = _about_data(num_values, encoding)
    return struct({1: _DATA, 2: i32(num_raw), 3: i32(num_bytes), 5: about})[1]


_DATA = i32(_DATA_PAGE)


@lru_cache(maxsize=1 << 12)
def _about_data(num_values: int, encoding: int) -> Value:
    return struct({1: i32(num_values), 2: i32(encoding), 3: i32(_RLE), 4: i32(_RLE)})


@lru_cache(maxsize=16)
def _fixed_metadata(name: str, encoding: int) -> dict[int, Value]:
    encodings = list_of([i32(kind) for kind in sorted({_PLAIN, _RLE, encoding})])
    return {1: i32(_INT32), 2: encodings, 3: list_of([text(name), text("list"), text("element")]), 4: i32(_ZSTD)}
