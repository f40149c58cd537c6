"""The forms of a row's values: texts, turns, tool schemas, calls, token ids; what entries of layouts ask for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from bridgepack.config.json_text import parsed_json, parsed_text
from bridgepack.config.layouts.contents import Contents, holds, is_empty, plain_name
from bridgepack.config.layouts.keys import CALL, PAIR, SCHEMA, TURN, declared_schemas, listed_turns, schemas_by_name
from bridgepack.config.layouts.rendered import has_named_turns, has_rendered_turns
from bridgepack.config.layouts.roles import CONTEXT_ROLES, FUNCTION_CALL, ROLE_NAMES
from bridgepack.config.layouts.turn_items import as_turns

#: Names of the column with a row's system text.
SYSTEM_COLUMNS = (
    *("system", "system_prompt", "system_message", "preamble", "system_instruction", "gen_ai.system_instructions"),
)
#: Names of the column with a row's token ids.
TOKEN_COLUMNS = ("input_ids", "token_ids", "tokens")
_SWITCHES = frozenset({"on", "off", "true", "false"})
#: The key of a function's name, in JSON or in Python's notation.
_NAME = re.compile("[\"']name[\"']")
#: The beginning of a list of turns in Python's notation.
_PYTHON_TURNS = re.compile(r"\s*[\[(]\s*\{\s*'(?:role|from|content|value)'\s*:")
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
    PAIRS = auto()  #: questions with their answers: objects whose keys are roles, or lists of two
    OTHER_TURNS = auto()  #: a list of objects that has text under other names, or one turn
    CONVERSATIONS = auto()  #: a list of lists of turns
    ROW = auto()  #: an object that has a list of turns
    ROWS = auto()  #: a list of such objects
    LIST = auto()  #: a list that is not empty
    COMPLETION = auto()  #: an answer of OpenAI's API, with its choices
    TREE = auto()  #: a message with its replies
    SCHEMAS = auto()  #: tool schemas
    LISTED_SCHEMAS = auto()  #: tool schemas whose functions the row's system text lists, too
    CALLS = auto()  #: tool calls: names with arguments
    SPANS = auto()  #: answers in a passage: `text` is a list
    TEXTS = auto()  #: a list of texts
    PARTS = auto()  #: a list of parts of content that are text
    NUMBER = auto()  #: a number, as an answer can be
    DATA = auto()  #: an object or a list that is nothing else, as an answer in JSON
    IDS = auto()  #: token ids, a mask or labels
    VARIABLES = auto()  #: an object
    TEXT_OF_TURNS = auto()  #: a text that holds turns: of a row in JSON, twice in JSON, or in Python's notation
    ANY = auto()  #: every value has this form


#: Forms of objects and lists whatever is in them.
_OF_DATA = frozenset({Form.VARIABLES, Form.LIST, Form.IDS})
_TURNS = frozenset({Form.OPENAI, Form.SHAREGPT, Form.OPEN_TURNS, Form.ANSWER_TURNS, Form.PAIRS})


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
    forms = frozenset(_forms_of(value))
    is_data = not isinstance(value, str | bool | int | float) and forms <= _OF_DATA
    return forms | ({Form.DATA, Form.ANY} if is_data else {Form.ANY})


def list_in(value: Any) -> list[Any]:
    """Return the list that a value is, as such or as JSON text; of one object, a list with it; else an empty list."""
    value = _content_in(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return [value]
    return list(value) if isinstance(value, list | tuple) else []


def _content_in(text: str) -> Any:
    """Return the list or object that a text is in JSON; None if it is none, or too long to look at."""
    is_one = text.lstrip()[:1] in {"[", "{"} and len(text) <= _MAX_JSON
    return parsed_json(text) if is_one else None


def function_of(schema: Any) -> Mapping[str, Any]:
    """Return the function of a tool schema or call, which some wrap: `{"type": "function", "function": {...}}`."""
    inner = schema.get("function") if isinstance(schema, Mapping) else None
    function = inner if isinstance(inner, Mapping) else schema
    return function if isinstance(function, Mapping) else {}


def texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts in a value: its own, those of turns and parts, and of lists."""
    if isinstance(value, str):
        content = _content_in(value)
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
    names = TURN.names_in(turn).get("role", ())
    return next((str(turn[name]).lower() for name in names if not is_empty(turn[name])), "")


def _system_text(row: Mapping[str, Any]) -> str:
    texts = [str(value) for name, value in row.items() if plain_name(str(name)) in SYSTEM_COLUMNS and value]
    for value in row.values():
        turns = list_in(value)
        if turns and isinstance(turns[0], Mapping) and role_of(turns[0]) in {"system", "developer"}:
            texts += texts_in(turns[0])
    return "\n".join(texts)


def _forms_of(value: Any) -> Iterator[Form]:
    if isinstance(value, str):
        inner = set(_forms_of(content)) if (content := _content_in(value)) is not None else set()
        yield from inner
        if not inner & _TURNS:
            yield Form.TEXT
            yield Form.SWITCH if value.strip().lower() in _SWITCHES else Form.WORDS
            if has_named_turns(value):
                yield Form.MARKED_TEXT
            if has_rendered_turns(value):
                yield Form.RENDERED_TEXT
            if _is_text_of_turns(value):
                yield Form.TEXT_OF_TURNS
    elif isinstance(value, bool):
        yield Form.SWITCH
    elif isinstance(value, int | float):
        yield Form.NUMBER
    elif isinstance(value, Mapping):
        yield from _forms_of_object(value)
    elif isinstance(value, list | tuple) and value:
        yield from _forms_of_list(value)


def _is_text_of_turns(text: str) -> bool:
    """Return whether a text holds turns, but is not their JSON: `{"messages": [...]}`, `[{'role': ..`."""
    if _PYTHON_TURNS.match(text):
        return True
    content = _content_in(text)
    if content is None and text.lstrip()[:1] == '"':
        inner = parsed_text(text)
        return inner is not None and bool(_TURNS & {*_forms_of(inner)})
    return isinstance(content, Mapping) and _is_row(content)


def _forms_of_object(value: Mapping[str, Any]) -> Iterator[Form]:
    yield Form.VARIABLES
    if isinstance(value.get("text"), list):
        yield Form.SPANS
    if isinstance(value.get("replies"), list):
        yield Form.TREE
    if _is_row(value):
        yield Form.ROW
    if isinstance(value.get("choices"), list) and all(map(_is_choice, value["choices"])):
        yield Form.COMPLETION
    if turns := listed_turns(value):
        yield from _forms_of_turns(turns)
    elif is_turn(value):
        yield Form.OTHER_TURNS
        if role_of(value) not in CONTEXT_ROLES:
            yield Form.ANSWER_TURNS
    yield from _forms_of_functions([value])


def _forms_of_list(value: Sequence[Any]) -> Iterator[Form]:
    yield Form.LIST
    if all(isinstance(item, int) for item in value):
        yield Form.IDS
        return
    if all(map(_is_part_of_text, value)):
        yield Form.PARTS
    items = as_turns(value)
    if all(isinstance(item, str) for item in items):
        yield Form.TEXTS
    elif all(isinstance(item, Mapping) for item in items):
        functions = set(_forms_of_functions(items))
        yield from functions
        if not functions:
            yield from _forms_of_turns(items)
        if all(map(_is_row, items)):
            yield Form.ROWS
    elif all(isinstance(item, list | tuple) and len(item) == 2 and _is_pair(*item) for item in items):
        yield Form.PAIRS
    elif all(map(_has_turns, items)):
        yield Form.CONVERSATIONS


def _is_part_of_text(item: Any) -> bool:
    texts = [item[name] for name in ("text", "content") if name in item] if isinstance(item, Mapping) else []
    return len(texts) == 1 and isinstance(texts[0], str) and item.get("type", "text") == "text" and "role" not in item


def _is_choice(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("message"), Mapping)


def _is_row(item: Mapping[str, Any]) -> bool:
    return any(map(_has_turns, item.values()))


def _has_turns(value: Any) -> bool:
    """Return whether a value is a list of turns."""
    items = as_turns(value) if isinstance(value, list | tuple) else ()
    return bool(items) and all(isinstance(item, Mapping) and is_turn(item) for item in items)


def _is_pair(question: Any, answer: Any) -> bool:
    """Return whether two values are a question and its answer, which can be a number or missing."""
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    return (question is None or isinstance(question, str)) and (answer is None or isinstance(answer, str) or is_number)


def _forms_of_functions(values: Sequence[Mapping[str, Any]]) -> Iterator[Form]:
    functions = [function_of(item) for item in values]
    if any({"role", "from"} & item.keys() for item in values):
        return
    if all(map(_is_call, functions)):
        yield Form.CALLS
    elif all(_is_schema(item) or _lists_schemas(item) for item in functions):
        yield Form.SCHEMAS


def _is_call(function: Mapping[str, Any]) -> bool:
    """Return whether an object has a name and arguments; `parameters` are some where they are no schema."""
    names = CALL.names_in(function)
    arguments = names.get("arguments", ())
    if not arguments or not isinstance(function.get(names.get("name", [""])[0]), str):
        return False
    if arguments[0] != "parameters":
        return True
    value = function["parameters"]
    is_schema = isinstance(value, Mapping) and all(isinstance(item, Mapping) for item in value.values())
    return not (is_schema or "description" in function or (isinstance(value, Mapping) and "type" in value))


def _lists_schemas(item: Mapping[str, Any]) -> bool:
    return bool(schemas_by_name(item) or declared_schemas(item))


def _is_schema(function: Mapping[str, Any]) -> bool:
    keys = {key for key, names in SCHEMA.names_in(function).items() if names != ["arguments"]}
    return isinstance(function.get("name"), str) and bool(keys & {"parameters", "description"})


def _forms_of_turns(turns: Sequence[Mapping[str, Any]]) -> Iterator[Form]:
    if not all(map(is_turn, turns)):
        if _are_pairs(turns):
            yield Form.PAIRS
        elif any(holds(str(key), item) == "text" for turn in turns for key, item in turn.items()):
            yield Form.OTHER_TURNS
        return
    roles = [role_of(turn) for turn in turns]
    if any(role not in CONTEXT_ROLES for role in roles):
        yield Form.OPENAI if all("role" in turn for turn in turns) else Form.SHAREGPT
    if roles[-1] in CONTEXT_ROLES:
        yield Form.OPEN_TURNS
    if roles[0] not in CONTEXT_ROLES:
        yield Form.ANSWER_TURNS


def is_turn(turn: Mapping[str, Any]) -> bool:
    """Return whether an object has a role, and a content or calls; null counts as content."""
    keys = {TURN.key(name) for name in turn}
    is_of_calls = bool({"tool_calls", FUNCTION_CALL} & turn.keys()) or ROLE_NAMES.get(role_of(turn)) == FUNCTION_CALL
    return "role" in keys and ("content" in keys or is_of_calls)


def _are_pairs(items: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether objects are questions with their answers, under the names of roles: `input` and `output`."""
    keys = [PAIR.names_in(item).keys() for item in items]
    return all(keys) and {"user", "assistant"} <= {key for names in keys for key in names}
