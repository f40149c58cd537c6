"""Opens plain, gzip and zstandard files as byte streams."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from bridgepack.data.reading.remote import Readable
from bridgepack.errors import DataError

_BUFFER_BYTES = 1 << 20
#: A block of zstandard data is at most 128 KiB once uncompressed, and at least 4 bytes before: 128 MiB from this many.
_ZSTANDARD_BLOCK_BYTES = 1 << 12
#: Text becomes 3 to 20 times larger, in extreme cases 100 times; gzip can reach 1032 times, zstandard 30,000 times.
_MAX_EXPANSION = 300
_ALWAYS_ALLOWED_BYTES = 1 << 30


@contextmanager
def open_stream(path: Readable, compression: str | None) -> Iterator[IO[bytes]]:
    """Open a file for reading its uncompressed bytes.

    Args:
        path: of the file.
        compression: `gz`, `zst` or None.

    Raises:
        DataError: when it cannot be opened or its compressed data is broken or cut off.
    """
    import zstandard

    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            if compression == "gz":
                with gzip.open(raw, "rb") as stream:
                    yield io.BufferedReader(_Expansion(stream, raw, path), _BUFFER_BYTES)
            elif compression == "zst":
                yield io.BufferedReader(_Expansion(_ZstandardReader(raw), raw, path), _BUFFER_BYTES)
            else:
                yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{path} is not whole {compression} data: {error}. Fetch or compress it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}. Check the file.") from None


def iter_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines without their newline; the stream needs no `readline`."""
    pending: list[bytes] = []
    while block := stream.read(_BUFFER_BYTES):
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join([*pending, line]) if pending else line
            pending = []
        if rest:
            pending.append(rest)
    if pending:
        yield b"".join(pending)


class _Expansion(io.RawIOBase):
    """An uncompressed stream that ends with an error where a little data grows beyond measure."""

    def __init__(self, stream: Any, raw: IO[bytes], path: Readable) -> None:
        self._stream = stream
        self._raw = raw
        self._path = path
        self._num_bytes = 0

    def readable(self) -> bool:
        """Say that it can be read from."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill the target as far as the stream does; 0 at the end.

        Raises:
            DataError: when the data has grown too much.
        """
        size: int = self._stream.readinto(target)
        self._num_bytes += size
        if self._num_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_EXPANSION * self._raw.tell()):
            raise DataError(
                f"{self._path} has grown to {self._num_bytes:,} bytes, more than {_MAX_EXPANSION} times its size, as "
                "no data set does. Uncompress it yourself and name the result, if it is meant to be so."
            )
        return size


class _ZstandardReader(io.RawIOBase):
    """Frames one after the other; zstandard's own reader takes a file that is cut off for a whole one."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._blocks = _iter_uncompressed(raw)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        """Say that it can be read from."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill the target as far as one block goes; 0 at the end.

        Raises:
            EOFError: when a frame is cut off.
        """
        while not self._pending:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._pending = memoryview(block)
        size = min(len(target), len(self._pending))
        target[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size


def _iter_uncompressed(raw: IO[bytes]) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    frame = None
    while block := raw.read(_ZSTANDARD_BLOCK_BYTES):
        while block:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(block)
            block, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("it is cut off inside a frame")
