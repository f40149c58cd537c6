"""Opens the files that a user names: regular ones of a limited size, text as UTF-8. Artifacts have own readers."""

import errno
import os
import stat
from pathlib import Path

from bridgepack.errors import ConfigError

#: Maximum size of settings and templates: recipes, cluster files, saved configs, configs of models and tokenizers.
MAX_BYTES = 16 << 20
#: Maximum size of vocabularies and of what runs log.
MAX_LARGE_BYTES = 1 << 30
#: Bytes that are read at a time.
_PART_BYTES = 1 << 20


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file; of a pipe, nothing is waited for.

    Raises:
        OSError: it cannot be read, is a folder, a pipe, a device or a socket, or has more bytes.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOLINK, "it is a link to a file that is not there", str(path)) from None
        raise
    parts, num_bytes = [], 0
    with os.fdopen(_regular(descriptor, path, max_bytes), "rb") as stream:
        while part := stream.read(_PART_BYTES):  # to ask for all that is allowed would take that memory
            parts.append(part)
            num_bytes += len(part)
            if num_bytes > max_bytes:  # it grows, or its file system does not know its size
                raise _too_large(path, max_bytes)
    return b"".join(parts)


def read_text(path: Path, *, max_bytes: int = MAX_BYTES, encoding: str = "utf-8") -> str:
    """Return the text of a regular file; every line ends as on Linux, as Python reads text.

    Raises:
        OSError: as for `read_bytes`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bytes(path, max_bytes=max_bytes).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def text_if_there(path: Path, *, max_bytes: int = MAX_BYTES, encoding: str = "utf-8") -> str | None:
    """Return the text of a regular file; None if there is no such file.

    Raises:
        ConfigError: there is one that cannot be read.
    """
    try:
        return read_text(path, max_bytes=max_bytes, encoding=encoding)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {reason_of(error)}. Give a regular UTF-8 file of at most {max_bytes:,} "
            "bytes, or remove it."
        ) from None


def real_path(path: Path) -> Path:
    """Return a path without links; it need not exist.

    Raises:
        OSError: it is a link to itself, of which `Path.resolve` says nothing from Python 3.13 on.
    """
    try:
        place = path.resolve()
    except RuntimeError:  # before Python 3.13
        place = path
    if place.is_symlink():
        raise OSError(errno.ELOOP, "it is a link to itself", str(path))
    return place


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, without its name."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start:,} is not UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _regular(descriptor: int, path: Path, max_bytes: int) -> int:
    """Return the descriptor if it is of a regular file that is small enough; otherwise close it.

    Raises:
        OSError: it is not.
    """
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if stat.S_ISREG(status.st_mode):
        raise _too_large(path, max_bytes)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _too_large(path: Path, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes", str(path))
