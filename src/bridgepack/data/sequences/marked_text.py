"""A conversation with a mark behind each text: if the render lacks a mark, the template lost its text.

Marks work however a template trims, escapes or moves texts: `Hi` -> `Hiqz0q` -> `<|user|> Hiqz0q`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.records import LostKind

REASONING = ("reasoning_content", "reasoning", "thinking")
#: OpenAI's older field for a turn's only call.
OLD_CALL = "function_call"
END_OF_THOUGHTS = "</think>"
#: Field of an answer that declines; content is then null.
REFUSAL = "refusal"
TOOL = "tool"
_SHOWN = 60
_TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})


class _Wanted(NamedTuple):
    mark: str
    kind: LostKind  #: of the loss if the mark is missing
    shown: str  #: description of the text, for people
    given: str  #: another mark; if that is missing too, this one is not reported


class MarkedChat:
    """A conversation with marks, and what its render must and must not contain."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None

    def __init__(self, conversation: Conversation, text: str) -> None:
        self._stem = "qz"
        while self._stem in text:
            self._stem += "z"
        self._wanted: list[_Wanted] = []
        #: (text that the render must not contain, kind of loss, description for people)
        self._unwanted: list[tuple[str, LostKind, str]] = []
        messages = conversation.messages
        self.messages = [self._message(messages, index) for index in range(len(messages))]
        self.tools = None if conversation.tools is None else [self._tool(tool) for tool in conversation.tools]

    def losses(self, render: str) -> Iterator[Loss]:
        """Yield the content that the render of these messages and tools lacks or garbles."""
        for mark, kind, shown, given in self._wanted:
            if mark not in render and given in render:
                yield Loss(kind, f"{shown} is not in the text")
        for form, kind, shown in self._unwanted:
            if form in render:
                yield Loss(kind, shown)

    def _want(self, kind: LostKind, shown: str, given: str = "") -> str:
        mark = f"{self._stem}{len(self._wanted)}q"
        self._wanted.append(_Wanted(mark, kind, shown, given))
        return mark

    def _with_mark(self, text: str, kind: LostKind, where: str) -> str:
        """Return a text with a mark behind it; leaves white space unchanged."""
        return text + self._want(kind, f"{where} {_short(text)}") if text.strip() else text

    def _message(self, messages: Sequence[dict[str, Any]], index: int) -> dict[str, Any]:
        message = messages[index]
        role, content = message["role"], message["content"]
        where, is_due = f"turn {index + 1} ({role}):", thoughts_are_due(messages, index)
        kind = LostKind.TOOL_RESULT if role == TOOL else LostKind.TEXT
        marked = dict(message)
        if isinstance(content, list):
            marked["content"] = self._parts(content, kind, where)
        elif isinstance(content, str) and role == ASSISTANT and END_OF_THOUGHTS in content:
            marked["content"] = self._answer(content, where, is_due)
        elif isinstance(content, str):
            marked["content"] = self._with_mark(content, kind, where)
        for name in REASONING:
            if isinstance(message.get(name), str) and is_due:
                marked[name] = self._with_mark(message[name], LostKind.REASONING, f"{where} {name}")
        if isinstance(message.get(REFUSAL), str):
            marked[REFUSAL] = self._with_mark(message[REFUSAL], LostKind.TEXT, f"{where} {REFUSAL}")
        if message.get(OLD_CALL):
            marked[OLD_CALL] = self._call(message[OLD_CALL], where)
        if isinstance(message.get("tool_calls"), list):
            marked["tool_calls"] = [self._call(call, where) for call in message["tool_calls"]]
        return marked

    def _answer(self, content: str, where: str, is_due: bool) -> str:
        """Return a turn's text with a mark at its end, and one after thoughts if they are expected."""
        thoughts, end, answer = content.rpartition(END_OF_THOUGHTS)
        if is_due and thoughts.replace("<think>", "").strip():
            thoughts = self._with_mark(thoughts, LostKind.REASONING, where)
        return thoughts + end + self._with_mark(answer, LostKind.TEXT, where)

    def _parts(self, parts: list[Any], kind: LostKind, where: str) -> list[Any]:
        marked: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                marked.append(self._with_mark(part, kind, where))
            elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
                marked.append({**part, "text": self._with_mark(part["text"], kind, where)})
            else:
                marked.append(part)
            name = part.get("type") if isinstance(part, Mapping) else None
            if kind == LostKind.TEXT and name not in _TEXT_PARTS:
                self._unwanted.append(("", LostKind.CONTENT_PARTS, f"{where} a {name} cannot be part of a packed text"))
        if parts:
            shown = f"{where} {_short(str(parts))} is written as a Python list"
            self._unwanted.append((str(marked), LostKind.CONTENT_PARTS, shown))
        return marked

    def _call(self, call: Any, where: str) -> Any:
        function = function_of(call)
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not name.strip():
            return call
        mark = self._want(LostKind.TOOL_CALL, f"{where} the call of {_short(name)}")
        marked = {**function, "name": name + mark}
        if arguments is not None:
            marked["arguments"] = self._arguments(arguments, f"{where} the arguments of {_short(name)}", mark)
        if function is call:
            return marked
        own_id = {"id": call["id"].replace(name, name + mark)} if isinstance(call.get("id"), str) else {}
        return {**call, **own_id, "function": marked}

    def _arguments(self, arguments: Any, shown: str, call: str) -> Any:
        """Return arguments with a marked one added, or a non-object text with a mark; empty ones unchanged."""
        values = _parsed(arguments) if isinstance(arguments, str) else arguments
        if isinstance(arguments, str) and not isinstance(values, Mapping):
            self._unwanted.append((call, LostKind.TOOL_ARGUMENTS, f"{shown} are text that is not a JSON object"))
            return arguments
        if not values or not isinstance(values, Mapping):
            return arguments
        key, value = (self._want(LostKind.TOOL_ARGUMENTS, shown, call) for _ in range(2))
        self._unwanted.append((f"'{key}': '{value}'", LostKind.TOOL_ARGUMENTS, f"{shown} are written as a Python dict"))
        self._unwanted.append((f'\\"{key}\\"', LostKind.DOUBLE_ENCODED, f"{shown} are JSON within a JSON text"))
        marked = {**values, key: value}
        return json.dumps(marked, ensure_ascii=False) if isinstance(arguments, str) else marked

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name.strip():
            return tool
        shown = f"the schema of the tool {_short(name)}"
        marked = {**function, "name": name + self._want(LostKind.TOOLS, shown)}
        self._unwanted.append((f"'name': {marked['name']!r}", LostKind.TOOLS, f"{shown} is written as a Python dict"))
        return marked if function is tool else {**tool, "function": marked}


def function_of(call: Any) -> Mapping[str, Any]:
    """Return the function of a tool call or schema, which may be the object itself."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def thoughts_are_due(messages: Sequence[Mapping[str, Any]], index: int) -> bool:
    """Return whether a turn answers the last user turn: templates omit the thoughts of earlier answers."""
    return messages[index]["role"] == ASSISTANT and all(message["role"] != "user" for message in messages[index + 1 :])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _short(text: str) -> str:
    words = " ".join(text[: 2 * _SHOWN].split())
    return repr(words[:_SHOWN] + "..." if len(text) > _SHOWN else words)
