"""Writes plain values as YAML that reads the same under YAML 1.1 and 1.2: one flow line, or a block."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

_PLAIN = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][\w./+-]*(?: [\w./+(-][\w./+()-]*)*", re.ASCII)
_WORDS_THAT_ARE_NO_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def flow(value: Any) -> str:
    """Return a value on one line: `8`, `'text'`, `[1, 2]`, `{a: 1}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return text_scalar(value)
    return _float(value) if isinstance(value, float) else json.dumps(value)


def block_lines(
    key: str, value: Any, step: str, *, comments: Mapping[str, str] = MappingProxyType({}), path: str = ""
) -> Iterator[str]:
    """Yield the lines of one entry of a block mapping; `key` is as written, `step` is the indentation per level.

    `comments` maps dotted paths to comments; `path` is the entry's dotted path.
    """
    comment = f" # {comments[path]}" if path in comments else ""
    if not isinstance(value, Mapping) or not value:
        yield f"{key}: {flow(value)}{comment}"
        return
    yield f"{key}:{comment}"
    for name, item in value.items():
        for line in block_lines(flow(name), item, step, comments=comments, path=f"{path}.{name}"):
            yield step + line


def text_scalar(text: str, style: str | None = None) -> str:
    """Return a string as a YAML scalar, in the given quote style if possible, else in quotes only if needed."""
    if not text.isprintable() or style == '"':
        return '"' + "".join(map(_escaped, text)) + '"'
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS_THAT_ARE_NO_TEXT
    return text if is_plain and style != "'" else "'" + text.replace("'", "''") + "'"


def _escaped(character: str) -> str:
    if character.isprintable() or character in '\n\r\t"\\':
        return json.dumps(character, ensure_ascii=False)[1:-1]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(value).partition("e")
    return mantissa + (".0" if "." not in mantissa else "") + exponent + power
