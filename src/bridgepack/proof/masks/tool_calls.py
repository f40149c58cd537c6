"""Whether what a tool call says can be found in the text that a chat template makes of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def lost_parts(text: str, calls: Any) -> list[str]:
    """Return what a turn's tool calls say that its text does not have: names, and values of arguments.

    A value may stand there as it is, or as JSON writes it, in a JSON text within JSON too; a number or a truth value as
    JSON or Python writes it. Example: text 'lookup {"query": "x"}', a call of `lookup` with query "y" -> ['"y"'].

    Args:
        text: of the turn.
        calls: the message's `tool_calls`.
    """
    return [shown for shown, forms in _parts(calls) if not any(form in text for form in forms)]


def _parts(calls: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield each name and value of calls, and the forms that it may have."""
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
    """Yield the values inside nested lists and objects, and the names of an object's fields, in no order."""
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
    """Return a text without white space around it as it is, and as JSON within JSON writes it."""
    forms = {text.strip()}
    for is_ascii in (False, True):
        once = json.dumps(text.strip(), ensure_ascii=is_ascii)[1:-1]
        forms |= {once, json.dumps(once, ensure_ascii=is_ascii)[1:-1]}
    return forms
