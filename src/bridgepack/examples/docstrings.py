"""Docstrings of Python's standard library, read from its source files without importing them."""

import ast
import random
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bridgepack.errors import DataError

#: Folders to skip: installed packages, tests, and parts that some distributions omit.
SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "idlelib", "lib2to3", "site-packages", "test", "tests", "turtledemo"}
)

Kind = Literal["module", "class", "function", "method"]
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentedObject:
    """A module, class, function or method and its docstring."""

    kind: Kind  #: kind of object
    name: str  #: full dotted name, e.g. `json.JSONEncoder.encode`.
    owner: str  #: dotted name of the module or class that defines it; empty for a module
    signature: str  #: as a caller writes it, e.g. `json.JSONEncoder.encode(self, o)`; the name alone for a module.
    text: str  #: the docstring, indentation cleaned; never empty

    @property
    def short_name(self) -> str:
        """Last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """First paragraph of the docstring, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


def iter_documented_modules(seed: int, root: Path | None = None) -> Iterator[tuple[DocumentedObject, ...]]:
    """Yield the documented objects of each standard-library module that has any, in a seeded order.

    Raises:
        DataError: the folder holds no Python source files.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    paths = sorted(_iter_source_files(root), key=lambda path: path.relative_to(root).as_posix())
    if not paths:
        raise DataError(
            f"{root} holds no Python source files; the example data is made from the docstrings found there. "
            "Run with a Python whose standard library is installed as .py files."
        )
    random.Random(seed).shuffle(paths)
    for path in paths:
        objects = documented_objects(path.read_bytes(), _module_name(path.relative_to(root)))
        if objects:
            yield objects


def documented_objects(source: bytes, module_name: str) -> tuple[DocumentedObject, ...]:
    """Return the module, its classes, functions and methods that have a docstring, in source order.

    A name defined twice counts once; ignores functions inside functions; returns nothing for source that does
    not parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    found = {module_name: _documented(tree, module_name, "", "module")}
    for name, owner, definition in _iter_definitions(tree.body, module_name):
        kind: Kind = "function" if owner == module_name else "method"
        kind = "class" if isinstance(definition, ast.ClassDef) else kind
        found.setdefault(name, _documented(definition, name, owner, kind))
    return tuple(entry for entry in found.values() if entry is not None)


def _iter_source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in root.walk():
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        yield from (folder / name for name in files if name.endswith(".py"))


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def _iter_definitions(body: Iterable[ast.stmt], owner: str) -> Iterator[tuple[str, str, _Definition]]:
    for statement in body:
        if isinstance(statement, _Definition):
            name = f"{owner}.{statement.name}"
            yield name, owner, statement
            if isinstance(statement, ast.ClassDef):
                yield from _iter_definitions(statement.body, name)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            nested = (node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))
            yield from _iter_definitions(nested, owner)


def _documented(node: ast.Module | _Definition, name: str, owner: str, kind: Kind) -> DocumentedObject | None:
    text = (ast.get_docstring(node) or "").strip()
    if not text or not _is_plain_text(text):
        return None
    signature = name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        signature = f"{name}({ast.unparse(node.args)})"
    return DocumentedObject(kind=kind, name=name, owner=owner, signature=signature, text=text)


def _is_plain_text(text: str) -> bool:
    has_surrogate = any("\ud800" <= character <= "\udfff" for character in text)
    return not has_surrogate and "\0" not in text and "<|" not in text
