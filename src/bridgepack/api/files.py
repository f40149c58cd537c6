"""Writes a report to the file that a user names: whole or not at all, and never over what the command reads."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridgepack.errors import ConfigError
from bridgepack.user_files import real_path


def check_report_path(path: Path | None, target: str, environment: str | None) -> None:
    """Check that a report's path is not one of the files that the check reads.

    Raises:
        ConfigError: it is one of them, and would be overwritten.
    """
    for name in (target, target.rpartition(":")[0], environment):
        if path is not None and name and os.path.exists(path) and os.path.exists(name) and path.samefile(name):  # noqa: PTH110
            raise ConfigError(f"--output is {str(path)!r}, which this command reads. Choose another.")


@contextmanager
def staged_report(path: Path | None, text: str, *, option: str = "--output") -> Iterator[None]:
    """Write a report to its path after the body has succeeded; check first that the path is writable.

    Nothing is written if the path is None; a device or a pipe is written to directly.

    Raises:
        ConfigError: the path cannot be written.
    """
    if path is None:
        yield
        return
    with ExitStack() as cleaning:
        with _explain_failure(path, option):
            is_special = path.exists() and not path.is_file() and not path.is_dir()
            temporary = None if is_special else _stage(real_path(path), text, cleaning)
        yield
        with _explain_failure(path, option):
            if temporary is None:
                _write_special(path, text)
            else:
                temporary.replace(real_path(path))


def _write_special(path: Path, text: str) -> None:
    """Write a text to a device or a pipe; one that nothing reads from would be waited for without end."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nothing reads from this pipe", str(path)) from None
        raise
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)


def _stage(path: Path, text: str, cleaning: ExitStack) -> Path:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    cleaning.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return Path(name)


@contextmanager
def _explain_failure(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} is {str(path)!r}; it cannot be written: {reason}. Choose another.") from None


def check_place(option: str, path: Path | None, artifact: Path, *, suffix: str, exception: str | None = None) -> None:
    """Check that a file to write is not one that is read; inside an artifact only the name `own` is allowed.

    Raises:
        ConfigError: the file is not allowed.
    """
    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigError(f"{option} is {str(path)!r}; allowed: a name that ends with {suffix}. Choose another.")
    folder, place = artifact.resolve(), real_path(path)
    if folder.is_dir() and place.is_relative_to(folder) and (exception is None or place != folder / exception):
        rule = f"allowed there: {exception}" if exception else "no file may be written there"
        raise ConfigError(f"{option} is {str(path)!r}, inside the folder that is read; {rule}. Choose another.")
