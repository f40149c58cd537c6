"""Items of a list of turns as data sets write them -> objects with a role, where one reading is right.

["user", "2 + 2?"], `{"type": "human", "content": "2 + 2?"}` (LangChain), items of OpenAI's Responses API, and the JSON
text of a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.contents import is_empty
from bridgepack.config.layouts.keys import CALL, PAIR, TURN
from bridgepack.config.layouts.response_items import is_response_item, turns_of_responses
from bridgepack.config.layouts.roles import ROLE_NAMES

#: A role and a text.
_LENGTH = 2
#: LangChain's fields that say who speaks and what, in `messages_to_dict` and in `dumpd`.
_TYPE, _DATA, _KWARGS = "type", "data", "kwargs"
#: Fields that say who speaks where their value is a role: PaLM's and AutoGen's.
_SPEAKERS = ("author", "source")
#: Field of a turn with others that its service sent, of LangChain and LlamaIndex.
_MORE = "additional_kwargs"
_CALLS = "tool_calls"


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
    turns = [_as_turn(item, parse) for item in items]
    if any(map(is_response_item, turns)):
        return turns_of_responses(turns)
    return [_with_empty_answer(turn) for turn in turns] if all(map(_is_question, turns)) else turns


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in ROLE_NAMES


def _type_in(names: Any) -> str:
    """Return who speaks by the class of a message of LangChain: [.., "AIMessage"] -> `ai`."""
    return str(names[-1]).partition("Message")[0].lower() if isinstance(names, list) and names else ""


def _as_turn(item: Any, parse: Callable[[str], Any]) -> Any:
    if isinstance(item, str) and item.lstrip()[:1] == "{":
        value = parse(item)
        return _as_turn(value, parse) if isinstance(value, Mapping) else item
    if not isinstance(item, Mapping):
        return item
    if isinstance(item.get(_MORE), Mapping):
        item = _with_more(item)
    if "role" in TURN.names_in(item):
        return item
    speaker = next((name for name in _SPEAKERS if _is_role(item.get(name))), None)
    if speaker is not None and "content" in item:
        return {"role": item[speaker], **{name: value for name, value in item.items() if name != speaker}}
    if item.get(_TYPE) == "constructor" and isinstance(kwargs := item.get(_KWARGS), Mapping):
        item = _with_more({_TYPE: _type_in(item.get("id")), **kwargs})
    if not _is_role(item.get(_TYPE)):
        return item
    data = item.get(_DATA)
    inside = data if isinstance(data, Mapping) and {*item} <= {_TYPE, _DATA} else item
    if "content" not in inside:  # a tool's schema has the type `function`
        return item
    fields = {name: value for name, value in inside.items() if name not in {_TYPE, "role"}}
    return _with_more({"role": item[_TYPE], **fields})


def _with_more(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a turn with the fields of `additional_kwargs` as its own; those that it has and that differ stay there."""
    more = item.get(_MORE)
    if not isinstance(more, Mapping):
        return item
    differing = {
        name: value
        for name, value in more.items()
        if not is_empty(value) and not is_empty(item.get(name)) and not _is_same(name, value, item[name])
    }
    turn = {name: value for name, value in item.items() if name != _MORE}
    turn |= {name: value for name, value in more.items() if not is_empty(value) and is_empty(item.get(name))}
    return {**turn, _MORE: differing} if differing else turn


def _is_same(name: str, value: Any, turn_value: Any) -> bool:
    are_calls = name == _CALLS and isinstance(value, list) and isinstance(turn_value, list)
    return value == turn_value or (are_calls and [*map(_said_by, value)] == [*map(_said_by, turn_value)])


def _said_by(call: Any) -> Any:
    """Return the name and the arguments of a call, whatever their keys are called."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping):
        return call
    values = {key: inner[names[0]] for key, names in CALL.names_in(inner).items()}
    arguments = values.get("arguments")
    return values.get("name"), parsed_json(arguments) if isinstance(arguments, str) else arguments


def _is_question(item: Any) -> bool:
    """Return whether an object has a question under the name of a role, as the pairs of a list do."""
    return isinstance(item, Mapping) and "role" not in TURN.names_in(item) and "user" in PAIR.names_in(item)


def _with_empty_answer(pair: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a question with an empty answer where that is null: every object of its list has a question."""
    if "assistant" in PAIR.names_in(pair):
        return pair
    return {name: "" if value is None and PAIR.key(name) == "assistant" else value for name, value in pair.items()}
