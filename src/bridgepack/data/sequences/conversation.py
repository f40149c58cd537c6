"""A row's columns -> OpenAI-style messages and tools: `messages`, ShareGPT `conversations`, or two text columns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.recipe.data import OWN_TEMPLATE_VARIABLES
from bridgepack.config.recipe.preprocessing import CONVERSATION_COLUMNS, ChatPreprocessing
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.encoding import columns_hint, text_of_column
from bridgepack.data.sequences.mending import Mender
from bridgepack.data.tokenizers.forms import AS_GIVEN, Forms
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Column with a row's variables for the template, if the recipe names none.
TEMPLATE_KWARGS_COLUMN = "chat_template_kwargs"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
FUNCTION_CALL = "function_call"
#: Fields that say whether a turn is trained (OpenAI's, and two that axolotl reads), and their allowed values.
_WEIGHTS = {"weight": "0 or 1", "train": "true or false", "training": "true or false"}
#: Role and content, or from and value.
_PLAIN_FIELDS = 2
_ALIASES = {"human": "user", "gpt": "assistant", "observation": "tool", "function_response": "tool"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One example in the form that chat templates take."""

    messages: list[dict[str, Any]]  #: in OpenAI style
    tools: list[dict[str, Any]] | None  #: schemas; None if the row has none
    template_kwargs: Mapping[str, Any]  #: the row's own variables for the template
    untrained: frozenset[int] = frozenset()  #: positions of assistant messages that the row excludes from training
    overruled: frozenset[int] = frozenset()  #: positions of messages whose weight is ignored and not 1
    is_plain: bool = False  #: its messages have only a role and a text, and there are no tools or variables


class ConversationReader:
    """Reads conversations from rows according to the recipe's settings."""

    def __init__(self, settings: ChatPreprocessing, role_aliases: Mapping[str, str], forms: Forms = AS_GIVEN) -> None:
        """Take the forms of the chat template, for settings that are `auto`."""
        self._settings = settings
        self._mended = Mender(settings, forms).mended
        self._role_aliases = {alias.lower(): _ALIASES.get(role, role) for alias, role in role_aliases.items()}
        self._own_names = ROLES - set(self._role_aliases)

    def read(self, columns: Mapping[str, Any]) -> Conversation:
        """Return a row's conversation.

        Raises:
            RowError: names what is missing, empty, of the wrong type, or an unknown role.
        """
        turns, system = _turns(columns, self._settings), columns.get("system")
        are_messages = self._are_messages(turns)
        is_plain = are_messages and not system and all(len(turn) == _PLAIN_FIELDS for turn in turns)
        if are_messages:
            messages = list(turns)
        else:
            messages = [_message(turn, index, self._role_aliases) for index, turn in enumerate(turns)]
        reads_weights, untrained = self._settings.message_weights == "mask", frozenset[int]()
        if not is_plain:  # fast path: most are plain
            untrained = _untrained(turns, messages, refuses_others=reads_weights)
            messages = [self._mended(message, f"turn {index}") for index, message in enumerate(messages, 1)]
        if system and not any(message["role"] == "system" for message in messages):
            _check_content(system, "system")
            messages.insert(0, self._mended({"role": "system", "content": system}, "system"))
            untrained = frozenset(index + 1 for index in untrained)
        tools = _tools(columns, self._settings)
        kwargs = template_kwargs(columns, self._settings.chat_template_kwargs_column)
        return Conversation(
            messages=messages,
            tools=tools,
            template_kwargs=kwargs,
            untrained=untrained if reads_weights else frozenset(),
            overruled=frozenset() if reads_weights else untrained,
            is_plain=is_plain and tools is None and not kwargs,
        )

    def _are_messages(self, turns: Sequence[Any]) -> bool:
        """Return whether every turn is already a plain message: a known role and text, nothing to translate or omit."""
        for turn in turns:
            if type(turn) is not dict or type(turn.get("content")) is not str:
                return False
            if type(role := turn.get("role")) is not str or role not in self._own_names:
                return False
            if None in turn.values() or turn.get("tool_calls") == []:
                return False
        return True


def _turns(columns: Mapping[str, Any], settings: ChatPreprocessing) -> Sequence[Any]:
    names = (settings.conversation_column,) if settings.conversation_column else CONVERSATION_COLUMNS
    name = next((name for name in names if columns.get(name) is not None), None)
    has_pair = settings.prompt_column in columns and settings.completion_column in columns
    if name is None:
        if has_pair:
            return _pair_as_turns(columns, settings)
        pair = f"{settings.prompt_column} with {settings.completion_column}"
        detail = f"none of {', '.join(names)}, nor {pair}; it has: {names_of(columns)}{columns_hint(columns)}"
        raise RowError(DropReason.MISSING_FIELD, detail)
    turns = columns[name]
    if not isinstance(turns, Sequence) or isinstance(turns, (str, bytes)):
        raise RowError(DropReason.INVALID_FIELD, f"{name} is a {type(turns).__name__}; it must be a list of turns")
    if not turns:
        raise RowError(DropReason.EMPTY_CONVERSATION, f"{name} has no turns")
    return turns


def _pair_as_turns(columns: Mapping[str, Any], settings: ChatPreprocessing) -> list[dict[str, Any]]:
    pair = {"user": settings.prompt_column, "assistant": settings.completion_column}
    return [{"role": role, "content": text_of_column(columns, name)} for role, name in pair.items()]


def _message(turn: Any, index: int, role_aliases: Mapping[str, str]) -> dict[str, Any]:
    where = f"turn {index + 1}"
    if not isinstance(turn, Mapping):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is a {type(turn).__name__}; it must be an object")
    # `datasets` and pyarrow give every turn the fields of all turns, with null where a turn lacks one.
    fill_ins = [key for key, value in turn.items() if value is None or (key == "tool_calls" and value == [])]
    given = {key: value for key, value in turn.items() if key == "content" or key not in fill_ins}
    if "role" in given and "content" in given:
        name, message = given["role"], given
    elif "from" in given and "value" in turn:
        name, message = str(given["from"]).lower(), {"role": given["from"], "content": turn["value"]}
    elif "role" in given and given.get("tool_calls"):
        name, message = given["role"], {**given, "content": None}
    else:
        detail = f"{where} has neither role and content nor from and value; it has: {names_of(given)}"
        raise RowError(DropReason.MISSING_FIELD, detail)
    if not isinstance(name, str):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: the role is a {type(name).__name__}; it must be text")
    role = role_aliases.get(name.lower()) or _ALIASES.get(name, name)
    if role == FUNCTION_CALL:
        return _function_call(message["content"], where)
    if role not in ROLES:
        raise RowError(DropReason.UNKNOWN_ROLE, f"{where}: role {name!r}; known: {', '.join(sorted(ROLES))}")
    _check_content(message["content"], f"{where}: content")
    message["role"] = role
    return message


def _untrained(turns: Sequence[Any], messages: Sequence[Mapping[str, Any]], *, refuses_others: bool) -> frozenset[int]:
    found = set()
    for index, (turn, message) in enumerate(zip(turns, messages, strict=True)):
        if len(turn) == _PLAIN_FIELDS:
            continue
        given = {key: turn[key] for key in _WEIGHTS if turn.get(key) is not None and message["role"] == "assistant"}
        for key, value in given.items():
            if refuses_others and value not in (0, 1):
                detail = f"turn {index + 1}: {key} is {value!r}; it must be {_WEIGHTS[key]}"
                raise RowError(DropReason.INVALID_FIELD, detail)
        if 0 in given.values() or (not refuses_others and any(value != 1 for value in given.values())):
            found.add(index)
    return frozenset(found)


def _check_content(content: Any, where: str) -> None:
    if content is not None and not isinstance(content, (str, list)):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is a {type(content).__name__}; it must be text")


def _function_call(value: Any, where: str) -> dict[str, Any]:
    """Return a ShareGPT `function_call` turn (JSON text of one call or a list) as an assistant turn with tool calls."""
    calls = _parsed(value, f"{where}: function_call") if isinstance(value, str) else value
    calls = calls if isinstance(calls, list) else [calls]
    if not calls:
        raise RowError(DropReason.INVALID_FIELD, f"{where}: function_call is an empty list")
    tool_calls = []
    for call in calls:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise RowError(DropReason.INVALID_FIELD, f"{where}: function_call must be an object with a name")
        function = {"name": call["name"], "arguments": call.get("arguments", {})}
        tool_calls.append({"type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}


def _tools(columns: Mapping[str, Any], settings: ChatPreprocessing) -> list[dict[str, Any]] | None:
    tools = columns.get(settings.tools_column)
    if isinstance(tools, str):
        tools = _parsed(tools, settings.tools_column) if tools.strip() else None
    if isinstance(tools, Mapping):
        tools = [tools] if tools else None
    if not tools and settings.tool_schemas:
        return [dict(tool) for tool in settings.tool_schemas]
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise RowError(
            DropReason.INVALID_FIELD, f"{settings.tools_column} must be a list of objects, or JSON text of one"
        )
    return [dict(tool) for tool in tools]


def template_kwargs(columns: Mapping[str, Any], column: str | None) -> Mapping[str, Any]:
    """Return a row's own variables for the template; null means none.

    Raises:
        RowError: the column does not hold an object, or sets a reserved variable.
    """
    given = columns.get(column) if column is not None else None
    if isinstance(given, str):
        given = _parsed(given, str(column)) if given.strip() else None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RowError(DropReason.INVALID_FIELD, f"{column} is a {type(given).__name__}; it must be an object")
    if own := sorted(OWN_TEMPLATE_VARIABLES.intersection(given)):
        raise RowError(DropReason.INVALID_FIELD, f"{column} sets {', '.join(own)}, which is reserved")
    return {key: value for key, value in given.items() if value is not None}


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RowError(DropReason.INVALID_FIELD, f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise RowError(DropReason.INVALID_FIELD, f"{where} is nested too deeply") from None
