"""The page of the manifest's fields, from the comments beside the fields of its dataclasses."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from bridgepack.records import Manifest

from .rules import page_of

_INTRODUCTION = """\
# Manifest reference

Every field of an artifact's `manifest.json`. [Artifact format](artifact.md) says what the files are for. Token counts
are runtime tokens.
"""
_FIELD = re.compile(r"(?P<above>(?: {4}#: [^\n]*\n)*) {4}(?P<name>\w+): (?P<rest>[^\n]*)")


def manifest_page() -> str:
    """Return the page of every field, a section for each kind of record."""
    sections = [_section(record) for record in _records_below(Manifest, [])]
    return page_of([_INTRODUCTION, *sections])


def _records_below(record: type, found: list[type]) -> list[type]:
    """Return a dataclass and those in its fields, each once, in the order of the fields."""
    if record not in found:
        found.append(record)
        for hint in get_type_hints(record).values():
            for kind in _kinds_in(hint):
                _records_below(kind, found)
    return found


def _kinds_in(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from _kinds_in(inner)


def _section(record: type) -> str:
    told = meanings_of_fields(record)
    lines = [f"- **`{name}`**" + (f": {meaning}" if meaning else "") for name, meaning in told.items()]
    first = (inspect.getdoc(record) or "").partition("\n")[0]
    return f"## {record.__name__}\n\n{first}\n\n" + "\n".join(lines) + "\n"


def meanings_of_fields(record: type) -> dict[str, str]:
    """Return what the comments beside the fields of a dataclass say, by field; empty where there is none."""
    names = [field.name for field in dataclasses.fields(record)]
    told = dict.fromkeys(names, "")
    for match in _FIELD.finditer(inspect.getsource(record)):
        if match["name"] in told:
            lines = [*re.findall(r"#: ([^\n]*)", match["above"]), *re.findall(r"  #: (.*)", match["rest"])]
            told[match["name"]] = " ".join(line.strip() for line in lines)
    return told
