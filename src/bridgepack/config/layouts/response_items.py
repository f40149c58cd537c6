"""Items of OpenAI's Responses API -> turns: messages, calls, what they returned, and thoughts.

What one response says before a result comes is one turn: its text, then its calls.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.keys import TURN

_TYPE, _ASSISTANT = "type", "assistant"
_CALL, _RESULT, _REASONING = "function_call", "function_call_output", "reasoning"
#: Field of a turn with a summary of its thoughts, which nobody reads.
_SUMMARY = "summary"


def is_response_item(item: Any) -> bool:
    """Return whether an item of a list is a call, a result or a thought of the Responses API, and no message."""
    if not isinstance(item, Mapping) or TURN.names_in(item).get("role"):
        return False
    is_call = item.get(_TYPE) == _CALL and {"name", "arguments"} <= item.keys() and "content" not in item
    is_thought = item.get(_TYPE) == _REASONING and bool({"summary", "content"} & item.keys())
    return is_call or is_thought or item.get(_TYPE) == _RESULT


def turns_of_responses(items: Sequence[Any]) -> list[Any]:
    """Return the turns that items of the Responses API say; items of another shape unchanged."""
    turns: list[Any] = []
    thoughts: dict[str, Any] = {}
    is_open = False  # whether the last turn is the assistant's, and no result has come
    for item in items:
        if not is_response_item(item):
            is_of_assistant = isinstance(item, Mapping) and item.get("role") == _ASSISTANT
            turns.append({**item, **thoughts} if is_of_assistant and thoughts else item)
            thoughts, is_open = ({} if is_of_assistant else thoughts), is_of_assistant
        elif item[_TYPE] == _RESULT:
            turns.append({"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")})
            is_open = False
        elif item[_TYPE] == _REASONING:
            thoughts |= _thoughts_of(item)
            is_open = False
        else:
            call = {name: value for name, value in item.items() if name not in {_TYPE, "status"}}
            if not is_open:
                turns.append({"role": _ASSISTANT, "content": "", **thoughts})
                thoughts = {}
            turns[-1] = {**turns[-1], "tool_calls": [*(turns[-1].get("tool_calls") or ()), call]}
            is_open = True
    if thoughts:
        turns.append({"role": _ASSISTANT, "content": "", **thoughts})
    return turns


def _thoughts_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a turn with the thoughts of an item, and with their summary."""
    fields = {}
    for name, content in (("reasoning_content", item.get("content")), (_SUMMARY, item.get("summary"))):
        parts = content if isinstance(content, list) else ()
        texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        if texts:
            fields[name] = "\n\n".join(texts)
    return fields
