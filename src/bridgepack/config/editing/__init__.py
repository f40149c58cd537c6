"""Writes changes back into a recipe file: YAML and TOML keep their comments, order, quotes and layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bridgepack.config.editing.edits import (
    REMOVE,
    CannotEditError,
    Edit,
    Kind,
    has_file_path,
    refuse,
    with_text_paths,
)
from bridgepack.config.editing.files import FileEdit, read_and_edit
from bridgepack.config.editing.python_lines import refuse_python
from bridgepack.config.editing.toml_text import edited_toml
from bridgepack.config.editing.yaml_text import edited_yaml

__all__ = ["REMOVE", "CannotEditError", "Edit", "FileEdit", "Kind", "edit_file", "edited_text"]

_SUFFIXES = ".yaml, .yml or .toml"


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
    if kind == "recipe":
        edits = [with_text_paths(edit) for edit in edits]
    if suffix in {".yaml", ".yml"}:
        _check_no_file_paths(edits)
        return edited_yaml(text, edits)
    if suffix == ".toml":
        _check_no_file_paths(edits)
        return edited_toml(text, edits)
    if suffix == ".py":
        for edit in edits:
            refuse_python(text, edit, function, kind)
        return text
    raise CannotEditError(f"a {suffix or 'nameless'} file cannot be edited; allowed: {_SUFFIXES}.")


def edit_file(place: str, edits: Sequence[Edit], *, kind: Kind = "recipe") -> FileEdit:
    """Return a recipe file before and after edits; `write()` puts the new text in place.

    Args:
        place: `FILE.yaml`, `FILE.toml`, `FILE.py` or `FILE.py:FUNCTION`.
        edits: made one after the other.
        kind: as for `edited_text`.

    Raises:
        CannotEditError: when the file cannot be read, or for the first edit that cannot be made.
    """
    file, separator, function = place.rpartition(":")
    if not separator or not file.lower().endswith(".py"):
        file, function = place, ""
    path = Path(file)
    return read_and_edit(
        path,
        edits,
        lambda text: edited_text(text, path.suffix.lower(), edits, function=function or None, kind=kind),
    )


def _check_no_file_paths(edits: Sequence[Edit]) -> None:
    """Refuse a `Path` in a saved configuration.

    Source: megatron-bridge 0.6.2 `utils/instantiate_utils.py`: pathlib is not among the allowed `_target_`s, and
        `to_yaml` writes a Path as `{_call_: true, _target_: pathlib.PosixPath}`, without the path.
    """
    for edit in edits:
        if has_file_path(edit.value):
            refuse(
                edit,
                "a saved configuration cannot hold a Path, which Megatron-Bridge refuses to load from YAML",
                f"Set {edit.path} to a Path in Python, or write it as text where text is allowed.",
            )
