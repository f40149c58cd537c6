"""Opens plain, gzip and zstandard files as byte streams."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from bridgepack.errors import DataError

_BUFFER_BYTES = 1 << 20


@contextmanager
def open_stream(path: Path, compression: str | None) -> Iterator[IO[bytes]]:
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
                    yield cast(IO[bytes], stream)
            elif compression == "zst":
                reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                with reader:
                    yield cast(IO[bytes], reader)
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
