"""Turns as data has them -> OpenAI's messages: the normaliser, which applies the table of `config.layouts.keys`.

What a turn or a call has under a name of no key stays or is named, so that nothing vanishes in silence.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.contents import is_empty, is_nan, media_in
from bridgepack.config.layouts.keys import PAIR, PART, REASONING, RESULT, TURN
from bridgepack.config.layouts.roles import FUNCTION_CALL, ROLE_NAMES, ROLES
from bridgepack.config.layouts.turn_items import as_turns
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.api_parts import is_part_of_api, messages_in_parts, text_of_thought
from bridgepack.data.layouts.calls import OtherKeys, call_of, calls_of_turn, reject_nameless
from bridgepack.data.layouts.values import parsed_turn
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.reading.json_texts import value_of_json
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.words import kind_of

#: Role and content, or from and value; a question and its answer.
_PLAIN_FIELDS, _PAIR_LENGTH = 2, 2
_CALLS_PATH, _CALL_PATH = f"{TURN_FIELD}tool_calls", f"{TURN_FIELD}{FUNCTION_CALL}"
#: Channels of turns that are no answers, in OpenAI's Harmony format.
_CHANNELS_OF_THOUGHTS = ("analysis", "commentary")
#: Names of a turn's role, and keys of a tool's turn that have other names.
_ROLE_FIELDS, _OF_RESULTS = TURN.names["role"], ("name", "tool_call_id")
#: How a list of parts begins in Python's notation.
_PYTHON_PARTS = ("[{'type': 'text'", "[{'text': ", "[{'type': 'image")
_KNOWN_ROLES = ROLES | {FUNCTION_CALL}
#: Fields of a turn of calls that are the call, where it has no content.
_FIELDS_OF_CALL = ("name", "arguments", "args", "parameters", "input", "function")


class Messages(NamedTuple):
    """The messages of a row."""

    messages: list[dict[str, Any]]  #: in OpenAI's form
    is_plain: bool  #: each has only a role and a text
    renamed: frozenset[int] = frozenset()  #: positions of those whose role or content had another name
    unread: Mapping[str, Any] = {}  #: path of a key that is left out -> its first value
    other_keys: Mapping[str, Any] = {}  #: path of a key that no call or part has -> its first value


class MessageReader:
    """Reads messages from turns."""

    def __init__(self, role_aliases: Mapping[str, str]) -> None:
        """Take the recipe's names of roles."""
        self._role_aliases = {alias.lower(): ROLE_NAMES.get(role, role) for alias, role in role_aliases.items()}
        self._plain_roles = ROLES - set(self._role_aliases)

    def read(self, turns: Sequence[Any]) -> Messages:
        """Return the messages of turns.

        Raises:
            RowError: names what a turn lacks, what means the same twice, or an unknown role.
        """
        if self.are_plain(turns):
            return Messages(list(turns), is_plain=True)
        messages: list[dict[str, Any]] = []
        renamed_turns = set[int]()
        unread: OtherKeys = {}
        other_keys: OtherKeys = {}
        for number, turn in enumerate(as_turns(turns, parsed_turn), 1):
            where, first = f"turn {number}", len(messages)
            for message in self._messages_of(turn, where, unread):
                messages += messages_in_parts(message, where, unread)
            if not isinstance(turn, Mapping) or not {"role", "content"} <= turn.keys():
                renamed_turns.update(range(first, len(messages)))
            for message in messages[first:]:
                _read_thoughts(message, unread)
                _read_calls(message, where, other_keys)
        return Messages(messages, False, frozenset(renamed_turns), unread, other_keys)

    def are_plain(self, turns: Sequence[Any]) -> bool:
        """Return whether every turn has a known role and a text, and nothing else; fast path for most rows."""
        roles = self._plain_roles
        try:
            for turn in turns:
                content = turn["content"]
                if type(turn) is not dict or len(turn) != _PLAIN_FIELDS or type(content) is not str:
                    return False
                if turn["role"] not in roles or content[:2] == "[{":
                    return False
        except (KeyError, TypeError):  # no turn, or one under other names; a role that is no text
            return False
        return True

    def _messages_of(self, turn: Any, where: str, unread: OtherKeys) -> Iterator[dict[str, Any]]:
        if isinstance(turn, (list, tuple)) and len(turn) == _PAIR_LENGTH:
            turn = dict(zip(("user", "assistant"), (turn[0], "" if turn[1] is None else turn[1]), strict=True))
        if not isinstance(turn, Mapping):
            detail = f"{where} is {kind_of(turn)}; it must be an object, or a list of a question and its answer"
            raise RowError(DropReason.INVALID_FIELD, detail)
        # `datasets` and pyarrow give every turn the fields of all turns, with null where a turn lacks one.
        fields = {name: value for name, value in turn.items() if value is not None and not is_nan(value)}
        calls = fields.get("tool_calls")
        if isinstance(calls, str):
            fields["tool_calls"] = value_of_json(calls, f"{where}: tool_calls") if calls.strip() else []
        if fields.get("tool_calls") == []:
            del fields["tool_calls"]
        if isinstance(fields.get("parts"), list):
            _take_parts(fields, where)
        names = _names_of(turn, fields, where)
        if names is not None:
            yield self._message(fields, *names, where, unread)
        elif _is_pair(fields):
            yield from _messages_of_pair(fields, where)
        else:
            detail = f"{where} has neither role and content nor from and value; it has: {names_of(fields)}"
            raise RowError(DropReason.MISSING_FIELD, detail)

    def _message(
        self, fields: dict[str, Any], role_name: str, content_name: str, where: str, unread: OtherKeys
    ) -> dict[str, Any]:
        role = self._role(fields[role_name], where)
        for name in _ROLE_FIELDS:
            second_role = fields.get(name) if name != role_name else None
            if isinstance(second_role, str) and self._role(second_role, where) in _KNOWN_ROLES - {role}:
                detail = f"{where} has the role {fields[role_name]!r} in {role_name}, but {second_role!r} in {name}"
                raise RowError(DropReason.INVALID_FIELD, f"{detail}; remove one")
        is_renamed = role_name != "role" or content_name != "content"
        left_out = {role_name, content_name, "role", "content"} if is_renamed else {"role", "content"}
        if is_renamed and content_name != "content" and not is_empty(fields.get("content")):
            unread.setdefault(f"{TURN_FIELD}content", fields["content"])
        if role == FUNCTION_CALL:
            return _turn_of_calls(fields, content_name, left_out, where, unread)
        if role not in ROLES:
            raise RowError(
                DropReason.UNKNOWN_ROLE,
                f"{where}: role {role!r}; known: {', '.join(sorted(ROLES))}; name it in data.role_aliases",
            )
        if fields.get("channel") in _CHANNELS_OF_THOUGHTS:
            raise RowError(
                DropReason.INVALID_FIELD,
                f"{where} has the channel {fields['channel']!r}, and would be trained as an answer; write its text as "
                "reasoning_content of the answer that follows, or its call as tool_calls",
            )
        content = _content_of(fields.get(content_name), role, f"{where}: content")
        if role == "tool":
            fields = _with_names_of_results(fields)
        if not is_renamed:
            return {**fields, "role": role, "content": content}
        other_fields = {name: value for name, value in fields.items() if name not in left_out}
        return {"role": role, "content": content, **other_fields}

    def _role(self, name: Any, where: str) -> str:
        """Return the role that a name stands for, or the name itself; a number is the text that JSON writes."""
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str):
            raise RowError(DropReason.INVALID_FIELD, f"{where}: the role is {kind_of(name)}; it must be text")
        return self._role_aliases.get(name.lower()) or ROLE_NAMES.get(name) or ROLE_NAMES.get(name.lower(), name)


def _with_names_of_results(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a tool's turn with OpenAI's names for the tool and its call; an `id` is the turn's own."""
    names = {name: RESULT.key(name) for name in fields if name != "id"}
    keys = {name: key for name, key in names.items() if key in _OF_RESULTS and key not in fields}
    return {keys.get(name, name): value for name, value in fields.items()}


def _take_parts(fields: dict[str, Any], where: str) -> None:
    """Put the parts of a turn of Vercel's AI SDK in the place of its content, whose text is a copy of theirs.

    Raises:
        RowError: the content says something else.
    """
    parts, content = fields["parts"], fields.get("content")
    if not isinstance(content, str) or not all(isinstance(part, Mapping) and "type" in part for part in parts):
        return
    texts = "".join(str(part.get("text", "")) for part in parts)
    if content.strip() not in texts:
        why = TURN.why_twice({"content": ["content", "parts"]})
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    fields["content"] = fields.pop("parts")
    calls = fields.get("toolInvocations")
    ids = {item["toolCallId"] for part in parts for item in (part, part.get("toolInvocation")) if _has_id(item)}
    if isinstance(calls, list) and all(_has_id(call) and call["toolCallId"] in ids for call in calls):
        del fields["toolInvocations"]


def _has_id(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("toolCallId"), str)


def _names_of(turn: Mapping[str, Any], fields: Mapping[str, Any], where: str) -> tuple[str, str] | None:
    """Return the names of a turn's role and content; None if it has none. Null content counts, as in calls."""
    if "role" in fields and "content" in fields:
        return "role", "content"
    if "from" in fields and "value" in turn:
        return "from", "value"
    names_of_keys = TURN.names_in(fields)
    roles, contents = names_of_keys.get("role", []), names_of_keys.get("content", [])
    if not roles:
        return None
    role = "role" if "role" in roles else roles[0]
    if why := TURN.why_twice({"content": contents}):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    if contents:
        return role, contents[0]
    is_call = (
        fields.get("tool_calls")
        or fields.get(FUNCTION_CALL)
        or (
            ROLE_NAMES.get(str(fields[role]).lower()) == FUNCTION_CALL
            and any(name in fields for name in _FIELDS_OF_CALL)
        )
    )
    return (role, "content") if is_call or (role == "role" and "content" in turn) else None


def _turn_of_calls(
    fields: Mapping[str, Any], content_name: str, left_out: Collection[str], where: str, unread: OtherKeys
) -> dict[str, Any]:
    """Return the assistant's turn of a turn that is nothing but calls, in its content or, without any, its fields."""
    value = fields.get(content_name)
    if value is None:
        thoughts = {name: fields[name] for name in REASONING if name in fields}
        call = {name: item for name, item in fields.items() if name not in {*left_out, *thoughts}}
        calls = calls_of_turn(call, _CALL_PATH, where, unread)
        return {**thoughts, "role": "assistant", "content": "", "tool_calls": calls}
    other_fields = {name: item for name, item in fields.items() if name not in left_out}
    calls = calls_of_turn(value, _CALL_PATH, where, unread)
    return {**other_fields, "role": "assistant", "content": "", "tool_calls": calls}


def _is_pair(fields: Mapping[str, Any]) -> bool:
    return bool(PAIR.names_in(fields))


def _messages_of_pair(fields: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of an object whose keys are roles: `{"input": "2 + 2?", "output": "4"}`; empty texts are none.

    Raises:
        RowError: it has several texts of one role.
    """
    names_of_keys = PAIR.names_in(fields)
    other_fields = {name: value for name, value in fields.items() if not PAIR.key(name)}
    has_empty_answer = "assistant" in names_of_keys
    names_of_keys = {key: [n for n in names if not is_empty(fields[n])] for key, names in names_of_keys.items()}
    if why := PAIR.why_twice(names_of_keys):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    for key in PAIR.names:
        if key == "assistant" and has_empty_answer and names_of_keys.get("user") and not names_of_keys["assistant"]:
            yield {"role": key, "content": "", **other_fields}
        if names := names_of_keys.get(key):
            content = _content_of(fields[names[0]], key, f"{where}: {names[0]}")
            yield {"role": key, "content": content, **(other_fields if key == "assistant" else {})}


def _content_of(content: Any, role: str, where: str) -> Any:
    """Return content as text or parts; a number, and an object that a tool returns, as the text that JSON writes.

    Raises:
        RowError: it is something else.
    """
    if isinstance(content, str):
        return _parts_in_text(content, where) if content[:2] == "[{" else content
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return json.dumps(content)
    if role == "tool" and (isinstance(content, Mapping) or _is_result(content)):
        return json.dumps(content, ensure_ascii=False)
    if content is not None and not isinstance(content, list):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is {kind_of(content)}; it must be text")
    for number, part in enumerate(content or (), 1):
        if part is not None and not isinstance(part, (str, Mapping)):  # templates write nothing, or Python's syntax
            detail = f"{where}: part {number} is {kind_of(part)}; it must be text or an object"
            raise RowError(DropReason.INVALID_FIELD, detail)
    return content


def _is_result(content: Any) -> bool:
    """Return whether a list is what a tool returned, and no list of parts of content."""
    if not isinstance(content, list) or not content:
        return False
    return not all(part is None or isinstance(part, str) or _is_part(part) for part in content)


def _is_part(part: Any) -> bool:
    is_object = isinstance(part, Mapping)
    return is_object and ("type" in part or is_part_of_api(part) or not PART.unknown_names(part))


def _parts_in_text(content: str, where: str) -> Any:
    """Return the parts of content that a text holds as JSON; the text if it holds none.

    Raises:
        RowError: it holds them as Python writes them.
    """
    if content.startswith(_PYTHON_PARTS):
        detail = f"{where} is a list of parts in Python's notation; write the list itself, or its JSON text"
        raise RowError(DropReason.INVALID_FIELD, detail)
    parts = parsed_json(content)
    are_parts = isinstance(parts, list) and all(
        isinstance(part, Mapping)
        and ((part.get("type") == "text" and isinstance(part.get("text"), str)) or (media_in(part) and "type" in part))
        for part in parts
    )
    return parts if are_parts else content


def _read_thoughts(message: dict[str, Any], unread: OtherKeys) -> None:
    """Put thoughts that are a list into one text; adds those that are something else to `unread`, without a field."""
    for name in REASONING:
        thoughts = message.get(name)
        if thoughts is None or isinstance(thoughts, str):
            continue
        if (text := text_of_thought(thoughts)) is not None:
            message[name] = text
        else:
            unread.setdefault(f"{TURN_FIELD}{name}", message.pop(name))


def _read_calls(message: dict[str, Any], where: str, other_keys: OtherKeys) -> None:
    """Put a message's calls into OpenAI's form, and add the keys that no call and no part of text has.

    Raises:
        RowError: two keys of a call mean the same, or a call has no name.
    """
    calls = message.get("tool_calls")
    if calls is not None:
        items = calls if isinstance(calls, (list, tuple)) else [calls]
        new_calls = [call_of(call, _CALLS_PATH, f"{where}: tool_calls", other_keys) for call in items]
        if items is not calls or any(new is not old for new, old in zip(new_calls, items, strict=True)):
            message["tool_calls"] = new_calls
        for number, call in enumerate(new_calls, 1):
            reject_nameless(call, f"{where}: tool call {number}")
    old_call = message.get(FUNCTION_CALL)
    if isinstance(old_call, Mapping):
        if all(value is None for value in old_call.values()):  # as Arrow fills turns that have none
            del message[FUNCTION_CALL]
        else:
            reject_nameless(old_call, f"{where}: {FUNCTION_CALL}")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type", "text") == "text":
            for name in PART.unknown_names(part):
                other_keys.setdefault(f"{TURN_FIELD}content.{name}", part[name])
