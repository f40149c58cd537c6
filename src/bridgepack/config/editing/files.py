"""A recipe file before and after edits."""

import ast
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path, PurePath
from typing import NoReturn

from bridgepack.config.editing.edits import CannotEditError, Kind, refuse
from bridgepack.config.editing.yaml_text import edited_yaml
from bridgepack.records import Change
from bridgepack.user_files import read_bytes, reason_of

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """A file before and after edits."""

    path: Path  #: as the user gave it
    old_text: str  #: as read, with its byte order mark and line endings
    new_text: str  #: after the edits

    def diff(self) -> str:
        """Return the change as a unified diff; empty if nothing changes."""
        old, new = (
            [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in StringIO(text)]
            for text in (self.old_text, self.new_text)
        )
        return "".join(difflib.unified_diff(old, new, str(self.path), str(self.path)))


def edit_file(place: str, edits: Sequence[Change], *, kind: Kind = "recipe") -> FileEdit:
    """Return a recipe file before and after edits; nothing is written.

    Args:
        place: `FILE.yaml`; for `FILE.toml`, `FILE.py` or `FILE.py:FUNCTION` the error says what to write where.
        edits: applied in order.
        kind: `recipe` for a bridgepack recipe, `container` for a Megatron-Bridge `ConfigContainer`.

    Raises:
        CannotEditError: the file cannot be read, or an edit is impossible (the first one counts).
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
    text: str, suffix: str, edits: Sequence[Change], *, function: str | None = None, kind: Kind = "recipe"
) -> str:
    """Return the text of a recipe file after edits; lines that no edit touches stay as they are, byte for byte.

    `suffix` is the file's format. In a Python file `function` returns the recipe or the config.

    Raises:
        CannotEditError: an edit is impossible (the first one counts).
    """
    body = text.removeprefix(_BYTE_ORDER_MARK)
    edits = [_plain(edit, suffix, kind) for edit in edits]
    match suffix:
        case ".py":
            for edit in edits:
                _refuse_python(body, edit, function, kind)
            new = body
        case ".yaml" | ".yml":
            new = edited_yaml(body, edits)
        case ".toml":
            for edit in edits:
                _refuse_toml(edit)
            new = body
        case _:
            file_type = f"a {suffix} file" if suffix else "a file without an ending"
            raise CannotEditError(f"{file_type} cannot be edited; allowed: .yaml or .yml.")
    return text[: len(text) - len(body)] + new


def read_text(path: Path) -> str:
    """Return a file's text, including byte order mark and original line endings.

    Raises:
        CannotEditError: it cannot be read.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        raise CannotEditError(f"{str(path)!r} cannot be edited: there is no such file. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotEditError(f"{str(path)!r} cannot be edited: {reason_of(error)}. It must be a UTF-8 file.") from None


def _plain(edit: Change, suffix: str, kind: Kind) -> Change:
    """Return an edit with tuples as lists, and in a bridgepack recipe with paths as text.

    Source: megatron-bridge 0.6.2 `utils/instantiate_utils.py`: pathlib is not among the allowed `_target_`s, and
        `to_yaml` writes a Path as `{_call_: true, _target_: pathlib.PosixPath}`, without the path.
    """
    if not all(edit.path.split(".")):
        refuse(edit, "the path has an empty name", "Correct the path.")
    if isinstance(edit.value, tuple):
        return replace(edit, value=list(edit.value))
    if isinstance(edit.value, PurePath) and kind == "recipe":
        return replace(edit, value=str(edit.value))
    if isinstance(edit.value, PurePath) and suffix != ".py":
        refuse(
            edit,
            "Megatron-Bridge refuses to load a Path from a saved YAML configuration",
            f"Set {edit.path} to a Path in Python, or write it as text if text is allowed.",
        )
    return edit


def _refuse_toml(edit: Change) -> NoReturn:
    """Raise for an edit of a TOML file, naming the table and the line to write.

    Raises:
        CannotEditError: always.
    """
    *tables, name = edit.path.split(".")
    place = f"In [{'.'.join(tables)}], write" if tables else "Write"
    if edit.value is None:
        advice = f"Remove {edit.path}, so that its default applies."
    elif isinstance(edit.value, Mapping):
        advice = ""
    else:
        advice = f"{place} {name} = {json.dumps(edit.value, ensure_ascii=False, default=str)}."
    refuse(edit, "TOML files are not edited", advice)


def _refuse_python(text: str, edit: Change, function: str | None, kind: Kind) -> NoReturn:
    """Raise for an edit of a Python file, naming the lines that set the value now, or the line to add.

    `function` returns the recipe or config (see `kind`); None means the only such function of the file.

    Raises:
        CannotEditError: always.
    """
    try:
        tree: ast.AST = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise CannotEditError(f"the file is not Python: {error}. Correct it first.") from None
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    lines = [
        f"line {value.lineno}, which has {ast.unparse(value)}"
        for path, value in _values(next(functions, tree), "", edit.path.split(".")[0])
        if path == edit.path
    ]
    new = f"Path({str(edit.value)!r})" if isinstance(edit.value, PurePath) else repr(edit.value)
    if lines:
        advice = f"Write {new} in {' and '.join(lines)}."
    elif kind == "recipe":
        advice = f"Return the recipe with .override({{{edit.path!r}: {new}}})."
    else:
        advice = f"Before returning the config (here cfg), write cfg.{edit.path} = {new}."
    refuse(edit, "Python files are not edited", advice)


def _values(node: ast.AST, path: str, section: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield (dotted path, value) of each keyword, entry of a dict, and assignment below a node.

    Example: `cfg.a.b = C(d=1)` -> `("a.b", C(d=1))`, `("a.b.d", 1)`.
    """
    prefix = f"{path}." if path else ""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            below = prefix + str(key.value) if isinstance(key, ast.Constant) else path
            yield below, value
            yield from _values(value, below, section)
        return
    if isinstance(node, ast.keyword) and node.arg:
        path = f"{prefix}{node.arg}"
        yield path, node.value
    elif isinstance(node, ast.Assign):
        name, _, attributes = ast.unparse(node.targets[0]).partition(".")
        path = attributes or (name if name == section else "")
        yield path, node.value
    for child in ast.iter_child_nodes(node):
        yield from _values(child, path, section)
