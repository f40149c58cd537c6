"""The sequences of one input range in one file: flat arrays that are memory-mapped, its drops, and a checksum.

    0          magic, padded to 64 bytes
    64         arrays one after the other, each at a multiple of 64: input_ids, loss_mask, then the index
    ...        footer: JSON text with the place of every array, counts, and the reasons of drops
    end - 24   size and CRC-32 of the footer, CRC-32 of all before it, magic

A file is whole or not there. Rows are counted within the range (`row_offset` 0 is its first), so that one file serves
every input that has the same bytes somewhere.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.files import replaced_when_whole
from bridgepack.errors import StoreError
from bridgepack.geometry import IntArray
from bridgepack.records import INPUT_IDS, LOSS_MASK, MaskArray, TokenArray

#: Of the file's layout; part of every key.
TOKEN_FILE_VERSION = 1
_MAGIC = b"bridgepack tokens 1\n"
_TRAILER = struct.Struct("<QII8s")
_END = b"bptoken\n"
_ALIGNMENT = 64
#: Files kept open at once; below the usual limit of 1024 open files of a process.
_MAX_OPEN_FILES = 640
_READ_BYTES = 1 << 22

Int32Array = npt.NDArray[np.int32]

_INDEX_ARRAYS = ("stored_lengths", "row_offsets", "num_trained", "num_learned", "num_context")
_DROP_ARRAYS = ("drop_rows", "drop_kinds")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenIndex:
    """What is known of a range's rows without reading tokens; arrays are in row order.

    Attributes:
        stored_lengths: shape [num_sequences], int32, stored.
        row_offsets: shape [num_sequences], int32, 0-based row within the range.
        num_trained: shape [num_sequences], int32, ones of the label-aligned mask.
        num_learned: shape [num_sequences], int32, labels trained at run time: those whose input is not EOS.
        num_context: shape [num_sequences], int32, leading tokens before the completion; -1 where that has no meaning.
        drop_rows: shape [num_drops], int32, 0-based row within the range of every row that gave no sequence.
        drop_kinds: shape [num_drops], int32, position in `kinds`.
        kinds: (reason, detail) of drops.
        num_rows: rows read, drops included.
        num_blank_lines: lines without anything on them.
    """

    stored_lengths: Int32Array
    row_offsets: Int32Array
    num_trained: Int32Array
    num_learned: Int32Array
    num_context: Int32Array
    drop_rows: Int32Array
    drop_kinds: Int32Array
    kinds: tuple[tuple[str, str], ...]
    num_rows: int
    num_blank_lines: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenArrays:
    """The tokens of a file: sequence `i` is `input_ids[offsets[i]:offsets[i + 1]]`, and so is its mask.

    Attributes:
        input_ids: shape [num_tokens], int32, stored.
        loss_mask: shape [num_tokens], int8, token-aligned: 1 where this token is trained as a target.
        offsets: shape [num_sequences + 1], int64, stored.
    """

    input_ids: TokenArray
    loss_mask: MaskArray
    offsets: IntArray


class TokenFileWriter:
    """Takes a range's sequences and drops in row order; ids go to the file at once, the rest at the end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._crc = 0
        self._position = 0
        self._masks: list[MaskArray] = []
        self._index: dict[str, list[Int32Array]] = {name: [] for name in (*_INDEX_ARRAYS, *_DROP_ARRAYS)}
        self._kinds: dict[tuple[str, str], int] = {}
        self._num_rows = 0
        self._num_blank_lines = 0
        self._put(_MAGIC)
        self._align()
        self._num_tokens = 0

    def add_sequences(
        self,
        input_ids: TokenArray,
        loss_mask: MaskArray,
        *,
        stored_lengths: npt.NDArray[Any],
        row_offsets: npt.NDArray[Any],
        num_trained: npt.NDArray[Any],
        num_learned: npt.NDArray[Any],
        num_context: npt.NDArray[Any],
    ) -> None:
        """Take sequences, laid one after the other."""
        assert input_ids.dtype == np.int32
        assert len(input_ids) == len(loss_mask) == int(stored_lengths.sum())
        self._put(np.ascontiguousarray(input_ids).data)
        self._num_tokens += len(input_ids)
        self._masks.append(loss_mask.astype(np.int8))
        arrays = (stored_lengths, row_offsets, num_trained, num_learned, num_context)
        for name, values in zip(_INDEX_ARRAYS, arrays, strict=True):
            self._index[name].append(values.astype(np.int32))

    def add_drops(self, drops: Sequence[tuple[int, str, str]]) -> None:
        """Take (0-based row within the range, reason, detail) of rows that gave no sequence."""
        if drops:
            kinds = [self._kinds.setdefault((reason, detail), len(self._kinds)) for _, reason, detail in drops]
            self._index["drop_rows"].append(np.array([row for row, _, _ in drops], dtype=np.int32))
            self._index["drop_kinds"].append(np.array(kinds, dtype=np.int32))

    def add_rows(self, num_rows: int, num_blank_lines: int) -> None:
        """Count rows, drops included, and lines without anything on them."""
        self._num_rows += num_rows
        self._num_blank_lines += num_blank_lines

    def finish(self) -> None:
        """Write what is left; the file is whole afterwards."""
        places: dict[str, list[Any]] = {INPUT_IDS: [_ALIGNMENT, "int32", self._num_tokens]}
        self._align()
        places[LOSS_MASK] = [self._position, "int8", self._num_tokens]
        for mask in self._masks:
            self._put(mask.data)
        for name, parts in self._index.items():
            self._align()
            places[name] = [self._position, "int32", sum(map(len, parts))]
            for part in parts:
                self._put(part.data)
        footer = json.dumps(
            {
                "version": TOKEN_FILE_VERSION,
                "arrays": places,
                "num_rows": self._num_rows,
                "num_blank_lines": self._num_blank_lines,
                "drop_kinds": list(self._kinds),
            }
        ).encode()
        crc = self._crc
        self._put(footer)
        self._put(_TRAILER.pack(len(footer), zlib.crc32(footer), crc, _END))
        self._stream.flush()

    def _put(self, data: Any) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self._position += memoryview(data).nbytes
        self._stream.write(data)

    def _align(self) -> None:
        self._put(bytes(-self._position % _ALIGNMENT))


@contextmanager
def write_token_file(path: Path) -> Iterator[TokenFileWriter]:
    """Give a writer; the file appears under its name once the block ends without an error, from any process."""
    with replaced_when_whole(path, is_shared=True) as temporary, temporary.open("wb") as stream:
        writer = TokenFileWriter(stream)
        yield writer
        writer.finish()


def read_token_index(path: Path) -> TokenIndex:
    """Return a file's index, without its tokens.

    Raises:
        StoreError: when the file is not whole.
    """
    with _opened(path) as (stream, footer):
        arrays = {name: _array(stream, footer, name) for name in (*_INDEX_ARRAYS, *_DROP_ARRAYS)}
        return TokenIndex(
            **arrays,
            kinds=tuple((str(reason), str(detail)) for reason, detail in footer["drop_kinds"]),
            num_rows=int(footer["num_rows"]),
            num_blank_lines=int(footer["num_blank_lines"]),
        )


def count_tokens(path: Path) -> tuple[int, int]:
    """Return (sequences, stored tokens) of a file, from its footer alone.

    Raises:
        StoreError: when the file is not whole.
    """
    with _opened(path) as (_, footer):
        return int(footer["arrays"]["stored_lengths"][2]), int(footer["arrays"][INPUT_IDS][2])


def check_token_file(path: Path) -> None:
    """Read a whole file and compare it with its checksums.

    Raises:
        StoreError: when a byte of it changed or it is not whole.
    """
    with _opened(path) as (stream, footer):
        remaining, crc = int(footer["_start"]), 0
        stream.seek(0)
        while remaining:
            block = stream.read(min(_READ_BYTES, remaining))
            if not block:
                raise _broken(path, "it is cut off")
            crc = zlib.crc32(block, crc)
            remaining -= len(block)
        if crc != footer["_crc"]:
            raise _broken(path, "its checksum is another")


class TokenFiles:
    """Random access to the sequences of several files; keeps the most recently used ones mapped."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open: OrderedDict[int, TokenArrays] = OrderedDict()

    def arrays(self, position: int) -> TokenArrays:
        """Return the mapped arrays of the file at a position of the list, without copying tokens.

        Raises:
            StoreError: when the file is not whole.
        """
        found = self._open.get(position)
        if found is not None:
            self._open.move_to_end(position)
            return found
        found = _mapped(self._paths[position])
        self._open[position] = found
        if len(self._open) > _MAX_OPEN_FILES:
            self._open.popitem(last=False)
        return found

    def tokens(self, position: int, index: int) -> tuple[TokenArray, MaskArray]:
        """Return ids and token-aligned mask of one sequence, without copying.

        Args:
            position: of the file, in the list.
            index: 0-based position of the sequence in that file.
        """
        arrays = self.arrays(position)
        start, stop = arrays.offsets[index], arrays.offsets[index + 1]
        return arrays.input_ids[start:stop], arrays.loss_mask[start:stop]


def _mapped(path: Path) -> TokenArrays:
    with _opened(path) as (stream, footer):
        lengths = _array(stream, footer, "stored_lengths")
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        content = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
    ids, mask = (
        np.frombuffer(content, dtype=kind, count=count, offset=start)
        for start, kind, count in (footer["arrays"][name] for name in (INPUT_IDS, LOSS_MASK))
    )
    return TokenArrays(input_ids=ids, loss_mask=mask, offsets=offsets)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], dict[str, Any]]]:
    """Give a file and its footer, with the start of the footer and the checksum of all before it."""
    try:
        with path.open("rb") as stream:
            yield stream, _footer(path, stream)
    except FileNotFoundError:
        raise _broken(path, "it is not there") from None


def _footer(path: Path, stream: IO[bytes]) -> dict[str, Any]:
    size = os.fstat(stream.fileno()).st_size
    if size < _ALIGNMENT + _TRAILER.size:
        raise _broken(path, "it is cut off")
    stream.seek(size - _TRAILER.size)
    length, footer_crc, crc, end = _TRAILER.unpack(stream.read(_TRAILER.size))
    start = size - _TRAILER.size - length
    if end != _END or start < _ALIGNMENT:
        raise _broken(path, "it is cut off, or no token file")
    stream.seek(start)
    text = stream.read(length)
    if zlib.crc32(text) != footer_crc:
        raise _broken(path, "the checksum of its footer is another")
    footer: dict[str, Any] = json.loads(text)
    if footer["version"] != TOKEN_FILE_VERSION:
        raise _broken(path, f"its version is {footer['version']}; this bridgepack reads {TOKEN_FILE_VERSION}")
    return {**footer, "_start": start, "_crc": crc}


def _array(stream: IO[bytes], footer: dict[str, Any], name: str) -> Int32Array:
    start, kind, count = footer["arrays"][name]
    values: Int32Array = np.empty(count, dtype=kind)
    stream.seek(start)
    stream.readinto(values.data)  # type: ignore[attr-defined]
    return values


def _broken(path: Path, reason: str) -> StoreError:
    return StoreError(f"{str(path)!r} cannot be used: {reason}. `bridgepack store verify --remove` takes it away.")
