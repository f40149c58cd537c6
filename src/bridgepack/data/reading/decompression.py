"""Opens plain, gzip and zstandard files as byte streams."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from bridgepack.data.reading.remote import Readable
from bridgepack.errors import DataError

_BUFFER_BYTES = 1 << 20
_CODECS = {"gz": "gzip", "zst": "zstd"}
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
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            if compression is None:
                yield raw
            else:
                import pyarrow as pa  # slow to import, and few files are compressed

                content = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), _CODECS[compression])
                yield cast("IO[bytes]", _Expansion(content, raw, path))
    except OSError as error:
        if compression is not None and error.errno is None:  # errors of files have a number
            raise DataError(f"{path} is not whole {compression} data: {error}. Fetch or compress it again.") from None
        raise DataError(f"{path} cannot be read: {error.strerror or error}. Check the file.") from None


class _Expansion(io.RawIOBase):
    """An uncompressed stream that ends with an error where a little data grows beyond measure."""

    def __init__(self, content: Any, raw: IO[bytes], path: Readable) -> None:
        self._content = content
        self._raw = raw
        self._path = path
        self._num_bytes = 0

    def readable(self) -> bool:
        """Say that it can be read from."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill the target as far as the data goes; 0 at the end.

        Raises:
            DataError: when the data has grown too much.
        """
        size: int = self._content.readinto(target)
        self._num_bytes += size
        if self._num_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_EXPANSION * self._raw.tell()):
            raise DataError(
                f"{self._path} has grown to {self._num_bytes:,} bytes, more than {_MAX_EXPANSION} times its size, as "
                "no data set does. Uncompress it yourself and name the result, if it is meant to be so."
            )
        return size
