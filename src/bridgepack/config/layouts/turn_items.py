"""Items of a list of turns as data sets write them -> objects with a role, where one reading is right.

["user", "2 + 2?"], `{"type": "human", "content": "2 + 2?"}` (LangChain), items of OpenAI's Responses API, and the JSON
text of a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.keys import TURN
from bridgepack.config.layouts.roles import FUNCTION_CALL, ROLE_NAMES

#: A role and a text.
_LENGTH = 2
#: LangChain's fields that say who speaks and what, in `messages_to_dict` and in `dumpd`.
_TYPE, _DATA, _KWARGS = "type", "data", "kwargs"
#: Types of items of OpenAI's Responses API that are a call, and what it returned.
_RESULT_ITEM = "function_call_output"
_ITEMS_OF_RESPONSES = frozenset({FUNCTION_CALL, _RESULT_ITEM})


def as_turns(items: Sequence[Any], parse: Callable[[str], Any] = parsed_json) -> Sequence[Any]:
    """Return the items of a list with those as objects with a role that say it in another way; others unchanged.

    Lists of two are turns where one begins with a role's name; else they are pairs of a question and its answer.
    `parse` reads the JSON text of a turn.
    """
    if not items:
        return items
    if all(isinstance(item, (list, tuple)) and len(item) == _LENGTH for item in items):
        has_roles = any(_is_role(item[0]) for item in items)
        return [{"role": item[0], "content": item[1]} for item in items] if has_roles else items
    return [_as_turn(item, parse) for item in items]


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in ROLE_NAMES


def _type_in(names: Any) -> str:
    """Return who speaks by the class of a message of LangChain: [.., "AIMessage"] -> `ai`."""
    return str(names[-1]).partition("Message")[0].lower() if isinstance(names, list) and names else ""


def _as_turn(item: Any, parse: Callable[[str], Any]) -> Any:
    if isinstance(item, str) and item.lstrip()[:1] == "{":
        value = parse(item)
        return _as_turn(value, parse) if isinstance(value, Mapping) else item
    if not isinstance(item, Mapping) or "role" in TURN.names_in(item):
        return item
    if item.get(_TYPE) == "constructor" and isinstance(kwargs := item.get(_KWARGS), Mapping):
        item = {_TYPE: _type_in(item.get("id")), **kwargs}
    if not _is_role(item.get(_TYPE)) and item.get(_TYPE) != _RESULT_ITEM:
        return item
    if item[_TYPE] in _ITEMS_OF_RESPONSES and "content" not in item:
        return _as_turn_of_responses(item)
    data = item.get(_DATA)
    inside = data if isinstance(data, Mapping) and {*item} <= {_TYPE, _DATA} else item
    if "content" not in inside:  # a tool's schema has the type `function`
        return item
    return {"role": item[_TYPE], **{name: value for name, value in inside.items() if name not in {_TYPE, "role"}}}


def _as_turn_of_responses(item: Mapping[str, Any]) -> Any:
    """Return an item of OpenAI's Responses API as a turn: a call, or what it returned under `call_id`."""
    if item[_TYPE] == _RESULT_ITEM:
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    fields = {name: value for name, value in item.items() if name not in {_TYPE, "status"}}
    return {"role": FUNCTION_CALL, **fields} if {"name", "arguments"} <= item.keys() else item
