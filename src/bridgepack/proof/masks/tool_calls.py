"""Searches a rendered text for the names and arguments of its tool calls."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def lost_parts(text: str, calls: Any) -> list[str]:
    """Return the names and argument values of a turn's tool calls that its text lacks.

    A value may occur unchanged, as JSON, or as JSON within JSON; a number or boolean as JSON or Python. Example: text
    'lookup {"query": "x"}', a call of `lookup` with query "y" -> ['"y"'].

    Args:
        text: rendered text of the turn.
        calls: the message's `tool_calls`.
    """
    return [shown for shown, forms in _parts(calls) if not any(form in text for form in forms)]


def _parts(calls: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield (shown text, possible forms) of each name and value in calls."""
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        name = function.get("name")
        if isinstance(name, str) and name.strip():
            yield f"the name {name!r}", _forms_of_text(name)
        yield from _arguments(function.get("arguments"))


def _arguments(arguments: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, (Mapping, list)):
            if arguments.strip():
                yield f"the arguments {arguments!r}", _forms_of_text(arguments)
            return
        arguments = parsed
    for value in leaves_of(arguments):
        if isinstance(value, str):
            if value.strip():
                yield json.dumps(value, ensure_ascii=False), _forms_of_text(value)
        elif value is not None:
            yield json.dumps(value), {json.dumps(value), str(value)}


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the values and field names inside nested lists and objects, in any order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += [*item.values(), *map(str, item)]
        elif isinstance(item, (list, tuple)):
            stack += item
        else:
            yield item


def _forms_of_text(text: str) -> set[str]:
    """Return the forms of a stripped text: unchanged, as JSON, and as JSON within JSON."""
    forms = {text.strip()}
    for is_ascii in (False, True):
        once = json.dumps(text.strip(), ensure_ascii=is_ascii)[1:-1]
        forms |= {once, json.dumps(once, ensure_ascii=is_ascii)[1:-1]}
    return forms
