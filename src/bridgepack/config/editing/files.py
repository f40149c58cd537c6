"""Reads a recipe file, and writes it back whole or not at all."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgepack.config.editing.edits import CannotEditError, Edit
from bridgepack.errors import ConfigError

_NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """A file before and after edits.

    Attributes:
        path: of the file, as the user gave it.
        old_text: as read, with its byte order mark and line endings.
        new_text: after the edits.
    """

    path: Path
    old_text: str
    new_text: str

    def diff(self) -> str:
        """Return the change as a unified diff; empty when there is none."""
        old, new = (text.split("\n") for text in (self.old_text, self.new_text))
        lines = difflib.unified_diff(_ended(old), _ended(new), str(self.path), str(self.path))
        return "".join(lines)

    def write(self) -> None:
        """Put the new text in the file's place, with its mode; a link stays and its target is replaced.

        Raises:
            ConfigError: when the file changed since it was read, or cannot be written.
        """
        target = self.path.resolve()
        if _read(self.path) != self.old_text:
            raise ConfigError(f"{str(self.path)!r} changed since it was read; it is left as it is. Run it again.")
        if self.new_text == self.old_text:
            return
        try:
            _replace(target, self.new_text.encode("utf-8"))
        except OSError as error:
            raise ConfigError(f"{str(self.path)!r} cannot be written: {error}. Check its folder's rights.") from None


def read_and_edit(path: Path, edits: Sequence[Edit], edited: Callable[[str], str]) -> FileEdit:
    """Return a file before and after edits; nothing is written.

    Args:
        path: of the file.
        edits: for the message when the file cannot be read.
        edited: gives the new text of an old one.

    Raises:
        CannotEditError: naming the file, when it cannot be read or an edit cannot be made.
    """
    old_text = _read(path)
    try:
        new_text = edited(old_text)
    except CannotEditError as error:
        raise CannotEditError(f"{path}: {error}", error.edit or (edits[0] if len(edits) == 1 else None)) from None
    return FileEdit(path=path, old_text=old_text, new_text=new_text)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise CannotEditError(f"{str(path)!r} cannot be edited: there is no such file. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotEditError(f"{str(path)!r} cannot be edited: {error}. It must be a UTF-8 file.") from None


def _ended(lines: list[str]) -> list[str]:
    """Return the pieces between line feeds as lines of a diff."""
    *whole, rest = lines
    return [f"{line}\n" for line in whole] + ([rest + _NO_NEWLINE] if rest else [])


def _replace(target: Path, content: bytes) -> None:
    mode = target.stat().st_mode & 0o7777
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
