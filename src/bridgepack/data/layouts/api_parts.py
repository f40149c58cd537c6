"""Parts of content that are calls, results and thoughts, as APIs have them -> messages.

Anthropic's, Gemini's, Bedrock's Converse and Vercel's AI SDK.
"""

import json
from collections.abc import Mapping
from typing import Any

from bridgepack.config.layouts.keys import RESULT
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.calls import OtherKeys, call_of, wrapped_call
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Keys of a part that hold a call, or a result.
_CALLS = ("functionCall", "function_call", "toolUse")
_RESULTS = ("functionResponse", "function_response", "toolResult")
#: Types of parts that are a call, or a result.
_CALL_TYPES = ("tool_use", "mcp_tool_use", "tool-call")
_RESULT_TYPES = ("tool_result", "mcp_tool_result", "tool-result")
_PATH = f"{TURN_FIELD}content"


def messages_in_parts(message: dict[str, Any], where: str, unread: OtherKeys) -> list[dict[str, Any]]:
    """Return the messages of one whose content may have parts that are calls, results and thoughts.

    Results come before what else a user's turn has. Adds the keys of such parts that nobody reads to `unread`.

    Raises:
        RowError: two keys of a call or of a result mean the same.
    """
    content = message["content"]
    if not isinstance(content, list) or not any(map(is_part_of_api, content)):
        return [message]
    results, calls, thoughts, other_parts = [], [], [], []
    for part in content:
        if not is_part_of_api(part):
            other_parts.append(part)
        elif part.get("type") in _RESULT_TYPES or _first(part, _RESULTS):
            results.append(_result(part, where, unread))
        elif thought := _thought(part):
            thoughts.append(thought[0])
            _note(part, thought[1], unread)
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
    is_named = part.get("type") in (*_CALL_TYPES, *_RESULT_TYPES)
    return is_named or bool(_first(part, (*_CALLS, *_RESULTS))) or _thought(part) is not None


def _thought(part: Mapping[str, Any]) -> tuple[str, frozenset[str]] | None:
    """Return the text of a part that is a thought, and the keys that say so; None for other parts."""
    text, kind = part.get("text"), part.get("type")
    if kind == "thinking" and isinstance(part.get("thinking"), str):
        return part["thinking"], frozenset({"type", "thinking"})
    if isinstance(text, str) and (kind == "reasoning" or part.get("thought") is True):
        return text, frozenset({"type", "text", "thought"})
    inner = _first(_first(part, ("reasoningContent",)), ("reasoningText",))
    return (inner["text"], frozenset({"reasoningContent"})) if isinstance(inner.get("text"), str) else None


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    return next((part[name] for name in names if isinstance(part.get(name), Mapping)), {})


def _call(part: Mapping[str, Any], where: str, unread: OtherKeys) -> dict[str, Any]:
    call = _first(part, _CALLS) or {name: value for name, value in part.items() if name != "type"}
    new_call = call_of(call, _PATH, where, unread)
    return new_call if "function" in new_call else wrapped_call(new_call)


def _result(part: Mapping[str, Any], where: str, unread: OtherKeys) -> dict[str, Any]:
    result = _first(part, _RESULTS) or part
    names = RESULT.names_in(result)
    if why := RESULT.why_twice(names):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    for name in RESULT.unknown_names(result):
        unread.setdefault(f"{_PATH}.{name}", result[name])
    values = {key: result[names_of_key[0]] for key, names_of_key in names.items()}
    return {"role": "tool", "content": _text_of_result(values.pop("content", None)), **values}


def _text_of_result(content: Any) -> Any:
    """Return what a tool returned as text or parts of text: of objects, the text that JSON writes.

    [{"json": {"m": 200}}] -> '{"m": 200}'; {"type": "json", "value": {"m": 200}} -> '{"m": 200}'
    """
    if isinstance(content, Mapping) and {*content} == {"type", "value"}:
        content = content["value"]
    if (
        isinstance(content, list)
        and len(content) == 1
        and isinstance(content[0], Mapping)
        and {*content[0]} == {"json"}
    ):
        content = content[0]["json"]
    if isinstance(content, str) or (isinstance(content, list) and content and all(map(_is_text, content))):
        return content
    return "" if content is None or content == [] else json.dumps(content, ensure_ascii=False)


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def _note(part: Mapping[str, Any], fields: frozenset[str], unread: OtherKeys) -> None:
    for name, value in part.items():
        if name not in fields and value is not None:
            unread.setdefault(f"{_PATH}.{name}", value)
