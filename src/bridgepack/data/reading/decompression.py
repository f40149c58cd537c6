"""Opens plain, gzip and zstandard files as byte streams."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from bridgepack.data.reading.remote import Readable
from bridgepack.errors import DataError

_BUFFER_BYTES = 1 << 20
_CODECS = {"gz": "gzip", "zst": "zstd"}
#: Text expands 3 to 20 times, in extreme cases 100 times; gzip can reach 1032 times, zstandard 30,000 times.
_MAX_EXPANSION = 300
_ALWAYS_ALLOWED_BYTES = 1 << 30


@contextmanager
def open_stream(path: Readable, compression: str | None) -> Iterator[IO[bytes]]:
    """Yield a stream of a file's uncompressed bytes; `compression` is `gz`, `zst` or None.

    Raises:
        DataError: it cannot be opened, or its compressed data is broken or truncated.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            yield raw if compression is None else stream_of(_expanded(raw, path, _CODECS[compression]))
    except OSError as error:
        if compression is not None and error.errno is None:  # file errors have a number
            raise DataError(f"{path} is incomplete {compression} data: {error}. Fetch or compress it again.") from None
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from None


def expansion(path: Readable, compression: str, num_bytes: int) -> float:
    """Return uncompressed / compressed size of a file, estimated from its first `num_bytes`.

    Raises:
        DataError, OSError: the file cannot be read.
    """
    expanded = position = 0
    with path.open("rb", buffering=_BUFFER_BYTES) as raw:
        for block in _expanded(raw, path, _CODECS[compression]):
            expanded, position = expanded + len(block), raw.tell()
            if expanded >= num_bytes:
                break
    return expanded / max(position, 1)


def stream_of(blocks: Iterator[bytes]) -> IO[bytes]:
    """Return a stream of blocks of bytes, which takes the next block only when it needs it."""
    return io.BufferedReader(_Blocks(blocks), _BUFFER_BYTES)


class _Blocks(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = filter(None, blocks)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        self._pending = self._pending or memoryview(next(self._blocks, b""))
        size = min(len(target), len(self._pending))
        target[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size


def _expanded(raw: IO[bytes], path: Readable, codec: str) -> Iterator[bytes]:
    """Yield uncompressed bytes; raises DataError for a decompression bomb."""
    import pyarrow as pa  # slow to import, and few files are compressed

    content = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    num_bytes = 0
    while block := content.read(_BUFFER_BYTES):
        num_bytes += len(block)
        if num_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_EXPANSION * raw.tell()):
            raise DataError(
                f"{path} expands to {num_bytes:,} bytes or more, over {_MAX_EXPANSION} times its size, as no data set "
                "does. If that is intended, decompress it yourself and name the result."
            )
        yield block
