"""A recipe file before and after edits."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from bridgepack.config.editing.edits import CannotEditError, Edit, Kind, refuse
from bridgepack.config.editing.python_lines import refuse_python
from bridgepack.config.editing.toml_text import edited_toml
from bridgepack.config.editing.yaml_text import edited_yaml

_BYTE_ORDER_MARK = "\ufeff"
_NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """A file before and after edits."""

    path: Path  #: of the file, as the user gave it
    old_text: str  #: as read, with its byte order mark and line endings
    new_text: str  #: after the edits

    def diff(self) -> str:
        """Return the change as a unified diff; empty when there is none."""
        old, new = (_diff_lines(text) for text in (self.old_text, self.new_text))
        return "".join(difflib.unified_diff(old, new, str(self.path), str(self.path)))


def edit_file(place: str, edits: Sequence[Edit], *, kind: Kind = "recipe") -> FileEdit:
    """Return a recipe file before and after edits; nothing is written.

    Args:
        place: `FILE.yaml` or `FILE.toml`; for `FILE.py` or `FILE.py:FUNCTION` the error says which lines to change.
        edits: made one after the other.
        kind: as for `edited_text`.

    Raises:
        CannotEditError: when the file cannot be read, or for the first edit that cannot be made.
    """
    file, _, function = place.rpartition(":")
    if not file.lower().endswith(".py"):
        file, function = place, ""
    path = Path(file)
    old_text = read_text(path)
    try:
        new_text = edited_text(old_text, path.suffix.lower(), edits, function=function or None, kind=kind)
    except CannotEditError as error:
        raise CannotEditError(f"{path}: {error}", error.edit or (edits[0] if len(edits) == 1 else None)) from None
    return FileEdit(path=path, old_text=old_text, new_text=new_text)


def edited_text(
    text: str, suffix: str, edits: Sequence[Edit], *, function: str | None = None, kind: Kind = "recipe"
) -> str:
    """Return the text of a recipe file after edits; lines that no edit touches stay as they are, byte for byte.

    Args:
        text: of the whole file.
        suffix: of its name: `.yaml`, `.yml` or `.toml`; for `.py` the error says which lines to change.
        edits: made one after the other.
        function: in a Python file, the one that gives the recipe or the config.
        kind: whether the file gives a bridgepack recipe or a Megatron-Bridge `ConfigContainer`.

    Raises:
        CannotEditError: for the first edit that cannot be made.
    """
    for edit in edits:
        if not all(edit.keys):
            refuse(edit, "the path has an empty name", "Correct the path.")
    edits = [replace(edit, value=_plain(edit.value, kind)) for edit in edits]
    body = text.removeprefix(_BYTE_ORDER_MARK)
    match suffix:
        case ".py":
            for edit in edits:
                refuse_python(body, edit, function, kind)
            return text
        case ".yaml" | ".yml":
            edited = edited_yaml
        case ".toml":
            edited = edited_toml
        case _:
            raise CannotEditError(f"a {suffix or 'nameless'} file cannot be edited; allowed: .yaml, .yml or .toml.")
    for edit in edits:
        _check_no_file_path(edit, edit.value)
    return text[: len(text) - len(body)] + edited(body, edits)


def read_text(path: Path) -> str:
    """Return a file's text with its byte order mark and line endings.

    Raises:
        CannotEditError: when it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise CannotEditError(f"{str(path)!r} cannot be edited: there is no such file. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotEditError(f"{str(path)!r} cannot be edited: {error}. It must be a UTF-8 file.") from None


def _plain(value: Any, kind: Kind) -> Any:
    """Return a value with lists for tuples; paths of the file system are text in a bridgepack recipe."""
    if isinstance(value, PurePath) and kind == "recipe":
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item, kind) for key, item in value.items()}
    return [_plain(item, kind) for item in value] if isinstance(value, list | tuple) else value


def _check_no_file_path(edit: Edit, value: Any) -> None:
    """Refuse a `Path` in a saved configuration.

    Source: megatron-bridge 0.6.2 `utils/instantiate_utils.py`: pathlib is not among the allowed `_target_`s, and
        `to_yaml` writes a Path as `{_call_: true, _target_: pathlib.PosixPath}`, without the path.
    """
    if isinstance(value, PurePath):
        refuse(
            edit,
            "a saved configuration cannot hold a Path, which Megatron-Bridge refuses to load from YAML",
            f"Set {edit.path} to a Path in Python, or write it as text where text is allowed.",
        )
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        _check_no_file_path(edit, item)


def _diff_lines(text: str) -> list[str]:
    """Return the lines of a text as a diff has them; only a line feed ends one."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest + _NO_NEWLINE] if rest else [])
