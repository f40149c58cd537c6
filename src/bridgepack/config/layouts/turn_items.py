"""Items of a list of turns as data sets write them -> objects with a role, where one reading is right.

["user", "2 + 2?"], `{"type": "human", "content": "2 + 2?"}` (LangChain), and the JSON text of a turn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.keys import TURN
from bridgepack.config.layouts.roles import ROLE_NAMES

#: A role and a text.
_LENGTH = 2
#: LangChain's fields that say who speaks and what, in `messages_to_dict`.
_TYPE, _DATA = "type", "data"


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


def _as_turn(item: Any, parse: Callable[[str], Any]) -> Any:
    if isinstance(item, str) and item.lstrip()[:1] == "{":
        value = parse(item)
        return _as_turn(value, parse) if isinstance(value, Mapping) else item
    if not isinstance(item, Mapping) or not _is_role(item.get(_TYPE)) or "role" in TURN.names_in(item):
        return item
    data = item.get(_DATA)
    inside = data if isinstance(data, Mapping) and {*item} <= {_TYPE, _DATA} else item
    if "content" not in inside:  # a tool's schema has the type `function`
        return item
    return {"role": item[_TYPE], **{name: value for name, value in inside.items() if name not in {_TYPE, "role"}}}
