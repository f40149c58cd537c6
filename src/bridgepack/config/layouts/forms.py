"""The forms of a row's values: texts, turns, tool schemas, calls, token ids; what entries of layouts ask for."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from bridgepack.config.layouts.contents import Contents, holds, plain_name
from bridgepack.config.layouts.rendered import has_named_turns, has_rendered_turns

#: Roles of turns that are no answer, as data sets name them, in lower case.
_CONTEXT_ROLES = frozenset(
    {
        *("system", "developer", "user", "human", "tool", "observation", "function", "function_response"),
        *("function_result", "tool_response", "ipython", "environment"),
    }
)
#: Names of the column with a row's system text.
SYSTEM_COLUMNS = ("system", "system_prompt", "system_message")
#: Names of the column with a row's token ids.
TOKEN_COLUMNS = ("input_ids", "token_ids", "tokens")
_SWITCHES = frozenset({"on", "off", "true", "false"})
#: The key of a function's name, in JSON or in Python's notation.
_NAME = re.compile("[\"']name[\"']")
_MAX_JSON, _DEPTH = 1 << 22, 20


class Form(StrEnum):
    """A form that a value has."""

    TEXT = auto()  #: a text that is not the JSON text of turns
    MARKED_TEXT = auto()  #: a text with several turns in it, under the names of their speakers
    RENDERED_TEXT = auto()  #: a text with several turns in it, as a chat template writes them
    WORDS = auto()  #: a text that is no switch
    SWITCH = auto()  #: on or off, true or false
    OPENAI = auto()  #: turns with role and content, one of them an answer
    SHAREGPT = auto()  #: turns with from and value, one of them an answer
    OPEN_TURNS = auto()  #: turns of either kind of which the last is no answer
    ANSWER_TURNS = auto()  #: turns of either kind of which the first is an answer
    OTHER_TURNS = auto()  #: a list of objects that has text under other names, or an object of lists
    SCHEMAS = auto()  #: tool schemas
    LISTED_SCHEMAS = auto()  #: tool schemas whose functions the row's system text lists, too
    CALLS = auto()  #: tool calls: names with arguments
    SPANS = auto()  #: answers in a passage: `text` is a list
    TEXTS = auto()  #: a list of texts
    IDS = auto()  #: token ids, a mask or labels
    VARIABLES = auto()  #: an object
    ANY = auto()  #: every value has this form


_TURNS = frozenset({Form.OPENAI, Form.SHAREGPT, Form.OPEN_TURNS, Form.ANSWER_TURNS})


@dataclass(frozen=True, slots=True)
class Profile:
    """What the values of a row are like; rows with equal profiles fit the same layouts."""

    forms: tuple[tuple[str, frozenset[Form]], ...]  #: column that is not empty -> forms of its value
    contents: tuple[tuple[str, Contents], ...]  #: the same columns -> what they hold

    @property
    def content_columns(self) -> frozenset[str]:
        """Columns that hold text or token ids."""
        tokens = (name for name, forms in self.forms if Form.IDS in forms and plain_name(name) in TOKEN_COLUMNS)
        return frozenset((*(name for name, kind in self.contents if kind == "text"), *tokens))


def profile_of(row: Mapping[str, Any]) -> Profile:
    """Return a row's profile."""
    contents = {str(name): kind for name, value in row.items() if (kind := holds(str(name), value)) is not None}
    forms = {str(name): forms_of(value) for name, value in row.items() if str(name) in contents}
    schemas = [name for name, own_forms in forms.items() if Form.SCHEMAS in own_forms]
    if schemas and (system := _system_text(row)):
        for name in schemas:
            names = [function_of(item).get("name") for item in list_in(row[name])]
            if all(f'"{item}"' in system or f"'{item}'" in system for item in names) and _NAME.search(system):
                forms[name] = forms[name] - {Form.SCHEMAS} | {Form.LISTED_SCHEMAS}
    return Profile(tuple(forms.items()), tuple(contents.items()))


def forms_of(value: Any) -> frozenset[Form]:
    """Return the forms of a value that is not empty."""
    return frozenset(_forms_of(value)) | {Form.ANY}


def list_in(value: Any) -> list[Any]:
    """Return the list that a value is, as such or as JSON text; of one object, a list with it; else an empty list."""
    value = parsed_json(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return [value]
    return list(value) if isinstance(value, list | tuple) else []


def parsed_json(text: str) -> Any:
    """Return the list or object that a text is in JSON; None if it is none."""
    if text.lstrip()[:1] not in {"[", "{"} or len(text) > _MAX_JSON:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def function_of(schema: Any) -> Mapping[str, Any]:
    """Return the function of a tool schema or call, which some wrap: `{"type": "function", "function": {...}}`."""
    inner = schema.get("function") if isinstance(schema, Mapping) else None
    function = inner if isinstance(inner, Mapping) else schema
    return function if isinstance(function, Mapping) else {}


def texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a value: its own, those of turns and parts, and of lists."""
    if isinstance(value, str):
        content = parsed_json(value)
        if content is not None and Form.TEXT not in forms_of(value):
            yield from texts_in(content, depth + 1)
        elif value.strip():
            yield value
    elif depth > _DEPTH:
        yield repr(value)
    elif isinstance(value, Mapping):
        yield from (
            text
            for key, item in value.items()
            if key not in {"role", "from", "type"}
            for text in texts_in(item, depth + 1)
        )
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in texts_in(item, depth + 1))


def role_of(turn: Mapping[str, Any]) -> str:
    """Return the role of a turn, in lower case."""
    return str(turn.get("role") or turn.get("from") or "").lower()


def _system_text(row: Mapping[str, Any]) -> str:
    texts = [str(value) for name, value in row.items() if plain_name(str(name)) in SYSTEM_COLUMNS and value]
    for value in row.values():
        turns = list_in(value)
        if turns and isinstance(turns[0], Mapping) and role_of(turns[0]) in {"system", "developer"}:
            texts += texts_in(turns[0])
    return "\n".join(texts)


def _forms_of(value: Any) -> Iterator[Form]:
    if isinstance(value, str):
        inner = set(_forms_of(content)) if (content := parsed_json(value)) is not None else set()
        yield from inner
        if not inner & _TURNS:
            yield Form.TEXT
            yield Form.SWITCH if value.strip().lower() in _SWITCHES else Form.WORDS
            if has_named_turns(value):
                yield Form.MARKED_TEXT
            if has_rendered_turns(value):
                yield Form.RENDERED_TEXT
    elif isinstance(value, bool):
        yield Form.SWITCH
    elif isinstance(value, Mapping):
        yield from _forms_of_object(value)
    elif isinstance(value, list | tuple) and value:
        yield from _forms_of_list(value)


def _forms_of_object(value: Mapping[str, Any]) -> Iterator[Form]:
    yield Form.VARIABLES
    if isinstance(value.get("text"), list):
        yield Form.SPANS
    if {"role", "content"} <= value.keys() or {"from", "value"} <= value.keys():
        yield Form.OTHER_TURNS
    yield from _forms_of_functions([value])


def _forms_of_list(value: Sequence[Any]) -> Iterator[Form]:
    if all(isinstance(item, int) for item in value):
        yield Form.IDS
    elif all(isinstance(item, str) for item in value):
        yield Form.TEXTS
    elif all(isinstance(item, Mapping) for item in value):
        functions = set(_forms_of_functions(value))
        yield from functions
        if not functions:
            yield from _forms_of_turns(value)


def _forms_of_functions(values: Sequence[Mapping[str, Any]]) -> Iterator[Form]:
    functions = [function_of(item) for item in values]
    if not all(isinstance(item.get("name"), str) for item in functions) or any(
        {"role", "from"} & item.keys() for item in values
    ):
        return
    if all("arguments" in item for item in functions):
        yield Form.CALLS
    elif not any("arguments" in item for item in functions) and all(
        {"parameters", "description", "inputSchema", "input_schema"} & item.keys() for item in functions
    ):
        yield Form.SCHEMAS


def _forms_of_turns(turns: Sequence[Mapping[str, Any]]) -> Iterator[Form]:
    is_openai = all("role" in turn and {"content", "tool_calls"} & turn.keys() for turn in turns)
    is_sharegpt = not is_openai and all("from" in turn and {"value", "tool_calls"} & turn.keys() for turn in turns)
    if not is_openai and not is_sharegpt:
        if any(holds(str(key), item) == "text" for turn in turns for key, item in turn.items()):
            yield Form.OTHER_TURNS
        return
    roles = [role_of(turn) for turn in turns]
    if any(role not in _CONTEXT_ROLES for role in roles):
        yield Form.OPENAI if is_openai else Form.SHAREGPT
    if roles[-1] in _CONTEXT_ROLES:
        yield Form.OPEN_TURNS
    if roles[0] not in _CONTEXT_ROLES:
        yield Form.ANSWER_TURNS
