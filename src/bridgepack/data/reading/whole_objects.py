"""Refuses a file that is one JSON object over several lines, and says how to write its rows one a line."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from bridgepack.config.json_text import parsed_json
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.lines import open_stream
from bridgepack.errors import DataError

#: Largest file that is parsed to say what it holds, in bytes as stored.
_MAX_BYTES = 1 << 28
#: Fields that tell a turn from a row.
_ROLES = frozenset({"role", "from"})


class OneObjectError(DataError):
    """A file is one object, and not rows."""


def refuse_whole_object(beginning: bytes, file: InputFile) -> None:
    """Raise OneObjectError if a file of lines, of which this is the beginning, is one object over several lines."""
    first_line = beginning.lstrip().partition(b"\n")[0]
    if not first_line.startswith(b"{") or parsed_json(first_line.decode(errors="replace")) is not None:
        return
    if file.num_bytes > _MAX_BYTES:
        return
    with open_stream(file.path, file.compression) as stream:
        value = parsed_json(stream.read().decode("utf-8-sig", errors="replace"))
    if isinstance(value, dict):
        contents, code = _what_it_holds(value)
        cure = "Write them as lines of JSON, one row each"
        if file.compression is None:
            path = json.dumps(str(file.path), ensure_ascii=False)
            command = shlex.quote(f'import json; t = json.load(open({path}, "rb")); {code}')
            cure = f"Write them as lines with `python3 -c {command} > rows.jsonl`, and name rows.jsonl instead"
        raise OneObjectError(f"{file.label} is one JSON object over several lines, and not rows: {contents}. {cure}.")


def _what_it_holds(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return what an object holds, in words, and the Python that prints its rows, where `t` is the object."""
    lists = {name: items for name, items in value.items() if isinstance(items, list) and items}
    for name, items in sorted(lists.items(), key=lambda item: -len(str(item[1]))):
        if all(isinstance(item, dict) and not _ROLES & {*item} for item in items):
            return f"it has them in {name}", f"[print(json.dumps(row)) for row in t[{json.dumps(name)}]]"
        if all(isinstance(item, list) and item and isinstance(item[0], dict) for item in items):
            rows = f'[print(json.dumps({{"messages": row}})) for row in t[{json.dumps(name)}]]'
            return f"it has their turns in {name}", rows
    if len(lists) == len(value) > 1 and len({*map(len, lists.values())}) == 1:
        return (
            f"it has a list for each column ({', '.join(lists)})",
            "[print(json.dumps(dict(zip(t, row)))) for row in zip(*t.values())]",
        )
    objects = [item for item in value.values() if isinstance(item, dict) and item]
    if objects and len(objects) == len(value):
        if len(objects) > 1 and all(item.keys() == objects[0].keys() and "0" in item for item in objects):
            return (
                f"it has an object for each column ({', '.join(value)})",
                "[print(json.dumps(dict(zip(t, row)))) for row in zip(*(c.values() for c in t.values()))]",
            )
        return "it has them under their names", "[print(json.dumps(row)) for row in t.values()]"
    return "it is one row", "print(json.dumps(t))"
