"""Opens plain, gzip and zstandard files as byte streams."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from bridgepack.data.reading.remote import Readable
from bridgepack.errors import DataError

_BUFFER_BYTES = 1 << 20
_CODECS = {"gz": "gzip", "zst": "zstd"}
#: Text becomes 3 to 20 times larger, in extreme cases 100 times; gzip can reach 1032 times, zstandard 30,000 times.
_MAX_EXPANSION = 300
_ALWAYS_ALLOWED_BYTES = 1 << 30


@contextmanager
def open_stream(path: Readable, compression: str | None) -> Iterator[IO[bytes]]:
    """Open a file, compressed as `gz`, `zst` or not at all (None), for reading its uncompressed bytes.

    Raises:
        DataError: when it cannot be opened or its compressed data is broken or cut off.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            yield raw if compression is None else stream_of(_expanded(raw, path, _CODECS[compression]))
    except OSError as error:
        if compression is not None and error.errno is None:  # errors of files have a number
            raise DataError(f"{path} is not whole {compression} data: {error}. Fetch or compress it again.") from None
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from None


def expansion(path: Readable, compression: str, num_bytes: int) -> float:
    """Return how many times more bytes a compressed file holds than it has, by the first `num_bytes` of them.

    Raises:
        DataError, OSError: when they cannot be read.
    """
    expanded = position = 0
    with path.open("rb", buffering=_BUFFER_BYTES) as raw:
        for block in _expanded(raw, path, _CODECS[compression]):
            expanded, position = expanded + len(block), raw.tell()
            if expanded >= num_bytes:
                break
    return expanded / max(position, 1)


def stream_of(blocks: Iterator[bytes]) -> IO[bytes]:
    """Return blocks of bytes as a stream, which takes one when it has given what was in those before."""
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
    """Yield uncompressed bytes; an error ends them where a little data grows beyond measure."""
    import pyarrow as pa  # slow to import, and few files are compressed

    content = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    num_bytes = 0
    while block := content.read(_BUFFER_BYTES):
        num_bytes += len(block)
        if num_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_EXPANSION * raw.tell()):
            raise DataError(
                f"{path} has grown to {num_bytes:,} bytes, more than {_MAX_EXPANSION} times its size, as no data set "
                "does. Uncompress it yourself and name the result, if it is meant to be so."
            )
        yield block
