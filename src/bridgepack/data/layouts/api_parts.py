"""Parts of content that are calls, results and thoughts, as the APIs of Anthropic and Gemini have them -> messages."""

import json
from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.calls import OtherKeys, call_of, wrapped_call
from bridgepack.errors import RowError
from bridgepack.records import DropReason

_CALLS, _RESULTS = ("functionCall", "function_call"), ("functionResponse", "function_response")
_PATH = f"{TURN_FIELD}content"
#: Fields of such parts that are read, or that say nothing.
_FIELDS_OF_RESULT = frozenset({"type", "tool_use_id", "content", "is_error"})
_FIELDS_OF_THOUGHT = frozenset({"type", "thinking"})


def messages_in_parts(message: dict[str, Any], where: str, unread: OtherKeys) -> list[dict[str, Any]]:
    """Return the messages of one whose content may have parts that are calls, results and thoughts.

    Results come before what else a user's turn has. Adds the keys of such parts that nobody reads to `unread`.

    Raises:
        RowError: two keys of a call mean the same, or a call has no name.
    """
    content = message["content"]
    if not isinstance(content, list) or not any(map(is_part_of_api, content)):
        return [message]
    results, calls, thoughts, other_parts = [], [], [], []
    for part in content:
        if not is_part_of_api(part):
            other_parts.append(part)
        elif part.get("type") == "tool_result":
            _note(part, _FIELDS_OF_RESULT, unread)
            results.append(_result(part.get("content"), {"tool_call_id": part.get("tool_use_id")}))
        elif part.get("type") == "thinking":
            _note(part, _FIELDS_OF_THOUGHT, unread)
            thoughts.append(part["thinking"])
        elif response := _first(part, _RESULTS):
            results.append(_result(response.get("response"), {name: response.get(name) for name in ("name", "id")}))
        else:
            calls.append(_call(part, where, unread))
    own_message = dict(message)
    own_message["content"] = other_parts or ("" if calls or thoughts else None)
    if calls:
        own_message["tool_calls"] = [*(message.get("tool_calls") or ()), *calls]
    if thoughts and "reasoning_content" not in message:
        own_message["reasoning_content"] = "\n\n".join(thoughts)
    return [*results, *([own_message] if other_parts or calls or thoughts else [])]


def is_part_of_api(part: Any) -> bool:
    """Return whether a part of content is a call, a result or a thought."""
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    is_thought = kind == "thinking" and isinstance(part.get("thinking"), str)
    return is_thought or kind in ("tool_use", "tool_result") or bool(_first(part, (*_CALLS, *_RESULTS)))


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    return next((part[name] for name in names if isinstance(part.get(name), Mapping)), {})


def _call(part: Mapping[str, Any], where: str, unread: OtherKeys) -> dict[str, Any]:
    call = _first(part, _CALLS) or {name: value for name, value in part.items() if name != "type"}
    new_call = call_of(call, _PATH, where, unread)
    new_call = new_call if "function" in new_call else wrapped_call(new_call)
    if not isinstance(new_call["function"].get("name"), str):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: a call in content must have a name")
    return new_call


def _result(content: Any, other_parts: Mapping[str, Any]) -> dict[str, Any]:
    is_text = isinstance(content, str) or (isinstance(content, list) and all(map(_is_text, content)))
    text = content if is_text else "" if content is None else json.dumps(content, ensure_ascii=False)
    return {
        "role": "tool",
        "content": text,
        **{name: value for name, value in other_parts.items() if value is not None},
    }


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text"


def _note(part: Mapping[str, Any], fields: frozenset[str], unread: OtherKeys) -> None:
    for name, value in part.items():
        if name not in fields and value is not None:
            unread.setdefault(f"{_PATH}.{name}", value)
