"""A conversation with a mark behind each text: if the render lacks a mark, the template lost its text.

Marks work however a template trims, escapes or moves texts: `Hi` -> `Hiqz0q` -> `<|user|> Hiqz0q`.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.contents import media_in
from bridgepack.config.layouts.forms import function_of
from bridgepack.config.layouts.keys import REASONING
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.mending import OLD_CALL
from bridgepack.records import ASSISTANT, THOUGHT_MARKERS, LostKind
from bridgepack.records.words import kind_of

#: Field of an answer that declines; content is then null.
REFUSAL = "refusal"
TOOL = "tool"
_SHOWN = 60
_TEXT_PARTS = frozenset({None, "text", "input_text", "output_text"})
#: Fields of a part that are not its text.
_NOT_TEXT = frozenset({"type", "id", "cache_control"})


class _Wanted(NamedTuple):
    mark: str
    kind: LostKind  #: of the loss if the mark is missing
    shown: str  #: description of the text, for people
    given: str  #: another mark; if that is missing too, this one is not reported


class MarkedChat:
    """A conversation with marks, and what its render must and must not contain."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None

    def __init__(
        self, conversation: Conversation, text: str, trained_turns: Collection[int], thought_fields: Collection[str]
    ) -> None:
        """Take a conversation, its render, and the positions of its answers that are trained.

        `thought_fields` are the fields of thoughts that the template writes somewhere.
        """
        self._stem = "qz"
        while self._stem in text:
            self._stem += "z"
        self._trained, self._written = trained_turns, thought_fields
        self._wanted: list[_Wanted] = []
        #: (text that the render must not contain, kind of loss, description for people)
        self._unwanted: list[tuple[str, LostKind, str]] = []
        messages = conversation.messages
        self.messages, num_wanted = [], [0]
        for index in range(len(messages)):
            self.messages.append(self._message(messages, index))
            num_wanted.append(len(self._wanted))
        #: For each message, the marks in it.
        self._marks = [[item.mark for item in self._wanted[start:stop]] for start, stop in pairwise(num_wanted)]
        self.tools = None if conversation.tools is None else [self._tool(tool) for tool in conversation.tools]

    def losses(self, render: str) -> Iterator[Loss]:
        """Yield the content that the render of these messages and tools lacks or garbles."""
        for mark, kind, description, context in self._wanted:
            if mark not in render and context in render:
                yield Loss(kind, f"{description} is not in the text")
        for form, kind, description in self._unwanted:
            if form in render:
                yield Loss(kind, description)

    def texts_behind_others(self, render: str) -> Iterator[Loss]:
        """Yield the texts of trained answers that the render has outside their turn, behind what a later turn says.

        Example: Gemma 4's template writes the text beside a call behind the call's result.
        """
        places = [[render.find(mark) for mark in marks] for marks in self._marks]
        descriptions = {item.mark: item.shown for item in self._wanted}
        for index in sorted(self._trained):
            in_render = [place for place in places[index] if place >= 0]
            begin = max((place for turn in places[:index] for place in turn), default=min(in_render, default=0))
            for mark, place in zip(self._marks[index], places[index], strict=True):
                later = enumerate(places[index + 1 :], index + 2)
                turn = next((turn for turn, starts in later if any(begin < start < place for start in starts)), None)
                if turn is not None:
                    detail = f"{descriptions[mark]} stands behind what turn {turn} says, and is not trained"
                    yield Loss(LostKind.TEXT, detail)

    def turns_without_end(self, render: str, ends: Sequence[str]) -> Iterator[int]:
        """Yield the trained answers behind which the render of these messages has no end marker.

        Answers of which the render has no mark are left out.
        """
        for index in sorted(self._trained):
            later = (render.find(mark) for marks in self._marks[index + 1 :] for mark in marks)
            limit = min((place for place in later if place >= 0), default=len(render))
            places = [render.find(mark, 0, limit) for mark in self._marks[index]]
            if max(places, default=-1) >= 0 and not any(end in render[max(places) : limit] for end in ends):
                yield index

    def _want(self, kind: LostKind, description: str, context: str = "") -> str:
        mark = f"{self._stem}{len(self._wanted)}q"
        self._wanted.append(_Wanted(mark, kind, description, context))
        return mark

    def _with_mark(self, text: str, kind: LostKind, where: str) -> str:
        """Return a text with a mark behind it; leaves white space unchanged."""
        return text + self._want(kind, f"{where} {_short(text)}") if text.strip() else text

    def _message(self, messages: Sequence[dict[str, Any]], index: int) -> dict[str, Any]:
        message = messages[index]
        role, content = message["role"], message["content"]
        where, reasoning = f"turn {index + 1} ({role}):", self._kind_of_reasoning(messages, index)
        kind = LostKind.TOOL_RESULT if role == TOOL else LostKind.TEXT
        marked_message = dict(message)
        if isinstance(content, list):
            marked_message["content"] = self._parts(content, kind, where)
        elif isinstance(content, str) and role == ASSISTANT:
            marked_message["content"] = self._answer(content, where, reasoning)
        elif isinstance(content, str):
            marked_message["content"] = self._with_mark(content, kind, where)
        for name in REASONING:
            if reasoning is not None and isinstance(message.get(name), str):
                lost_kind = reasoning if name in self._written else LostKind.REASONING
                marked_message[name] = self._with_mark(message[name], lost_kind, f"{where} {name}")
        if isinstance(message.get(REFUSAL), str):
            marked_message[REFUSAL] = self._with_mark(message[REFUSAL], LostKind.TEXT, f"{where} {REFUSAL}")
        if message.get(OLD_CALL):
            marked_message[OLD_CALL] = self._call(message[OLD_CALL], where)
        if isinstance(message.get("tool_calls"), list):
            marked_message["tool_calls"] = [self._call(call, where) for call in message["tool_calls"]]
        return marked_message

    def _kind_of_reasoning(self, messages: Sequence[Mapping[str, Any]], index: int) -> LostKind | None:
        """Return the kind of loss if a turn's thoughts are missing; None if they may be."""
        if thoughts_are_due(messages, index):
            return LostKind.REASONING
        return LostKind.EARLIER_REASONING if index in self._trained else None

    def _answer(self, content: str, where: str, reasoning: LostKind | None) -> str:
        """Return a turn's text with a mark at its end, and one after thoughts if a loss of them counts."""
        thoughts, end, answer = split_thoughts(content)
        if reasoning and thoughts.strip():
            thoughts = self._with_mark(thoughts, reasoning, where)
        return thoughts + end + self._with_mark(answer, LostKind.TEXT, where)

    def _parts(self, parts: list[Any], kind: LostKind, where: str) -> list[Any]:
        marked_parts: list[Any] = []
        for part in parts:
            name = part.get("type") if isinstance(part, Mapping) else None
            is_result = kind == LostKind.TOOL_RESULT
            if isinstance(part, str):
                marked_parts.append(self._with_mark(part, kind, where))
                self._forbid_quotes(marked_parts[-1], part, where, is_json_fine=is_result)
            elif (kind_of_media := media_in(part)) or (name not in _TEXT_PARTS and not is_result):
                marked_parts.append(part)
                detail = f"{where} a {kind_of_media or name} cannot be part of a packed text"
                self._unwanted.append(("", LostKind.CONTENT_PARTS, detail))
            elif isinstance(part, Mapping):
                # a tool may well answer with JSON, but not with parts of text as JSON
                is_json_fine = is_result and (name is None or name not in _TEXT_PARTS)
                marked_parts.append(self._leaves(part, kind, where, is_json_fine=is_json_fine))
            else:
                marked_parts.append(part)
        return marked_parts

    def _leaves(self, value: Any, kind: LostKind, where: str, *, is_json_fine: bool) -> Any:
        """Return a part's value with a mark behind each text in it, and one more field in each object in it.

        The render has that field if it writes the object as such, in whatever form.
        """
        if isinstance(value, str):
            return self._with_mark(value, kind, where)
        if isinstance(value, list):
            return [self._leaves(item, kind, where, is_json_fine=is_json_fine) for item in value]
        if not isinstance(value, Mapping):
            return value
        name, description = f"{self._stem}p{len(self._unwanted)}q", f"{where} {_short(str(value))} is written as"
        self._unwanted.append((f"'{name}'", LostKind.CONTENT_PARTS, f"{description} a Python dict"))
        if not is_json_fine:
            self._unwanted.append((name, LostKind.CONTENT_PARTS, f"{description} an object"))
        marked_value = {
            key: item
            if key in _NOT_TEXT or str(key).endswith("_id")
            else self._leaves(item, kind, where, is_json_fine=is_json_fine)
            for key, item in value.items()
        }
        return {**marked_value, name: ""}

    def _forbid_quotes(self, marked_text: str, part: str, where: str, *, is_json_fine: bool) -> None:
        """Note that the render must not have a text of a list as Python's lists or JSON's show it."""
        forms = {repr(marked_text), json.dumps(marked_text), json.dumps(marked_text, ensure_ascii=False)}
        for form in sorted(forms) if marked_text != part else ():
            if form[0] == "'" or not is_json_fine:
                detail = f"{where} {_short(part)} is written in quotes, as in a list"
                self._unwanted.append((form, LostKind.CONTENT_PARTS, detail))

    def _call(self, call: Any, where: str) -> Any:
        function = function_of(call)
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not name.strip():
            return call
        mark = self._want(LostKind.TOOL_CALL, f"{where} the call of {_short(name)}")
        marked_function = {**function, "name": name + mark}
        if arguments is not None:
            marked_function["arguments"] = self._arguments(arguments, f"{where} the arguments of {_short(name)}", mark)
        if function is call:
            return marked_function
        own_id = {"id": call["id"].replace(name, name + mark)} if isinstance(call.get("id"), str) else {}
        return {**call, **own_id, "function": marked_function}

    def _arguments(self, arguments: Any, description: str, call: str) -> Any:
        """Return arguments with a marked one added, or a non-object text with a mark; empty ones unchanged."""
        values = parsed_json(arguments) if isinstance(arguments, str) else arguments
        if isinstance(arguments, str) and not isinstance(values, Mapping):
            self._unwanted.append((call, LostKind.TOOL_ARGUMENTS, f"{description} are text that is not a JSON object"))
            return arguments
        if values and not isinstance(values, Mapping):
            self._unwanted.append((call, LostKind.TOOL_ARGUMENTS, f"{description} are {kind_of(values)}, no object"))
        if not values or not isinstance(values, Mapping):
            return arguments
        key, value = (self._want(LostKind.TOOL_ARGUMENTS, description, call) for _ in range(2))
        self._unwanted.append(
            (f"'{key}': '{value}'", LostKind.TOOL_ARGUMENTS, f"{description} are written as a Python dict")
        )
        self._unwanted.append((f'\\"{key}\\"', LostKind.DOUBLE_ENCODED, f"{description} are JSON within a JSON text"))
        marked_values = {**values, key: value}
        return json.dumps(marked_values, ensure_ascii=False) if isinstance(arguments, str) else marked_values

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name.strip():
            return tool
        description = f"the schema of the tool {_short(name)}"
        marked_function = {**function, "name": name + self._want(LostKind.TOOLS, description)}
        self._unwanted.append(
            (f"'name': {marked_function['name']!r}", LostKind.TOOLS, f"{description} is written as a Python dict")
        )
        return marked_function if function is tool else {**tool, "function": marked_function}


def split_thoughts(content: str) -> tuple[str, str, str]:
    """Return (thoughts with the marker that opens them, the marker that closes them, the rest); empty if none.

    `<think>Hm.</think>Yes.` -> (`<think>Hm.`, `</think>`, `Yes.`). Thoughts without words are part of the marker.
    """
    for opening, closing, is_own in THOUGHT_MARKERS:
        thoughts, end, answer = content.rpartition(closing)
        if end and (is_own or opening in thoughts):
            has_words = thoughts.replace(opening, "").strip()
            return (thoughts, end, answer) if has_words else ("", thoughts + end, answer)
    return "", "", content


def thoughts_are_due(messages: Sequence[Mapping[str, Any]], index: int) -> bool:
    """Return whether a turn answers the last user turn: templates omit the thoughts of earlier answers."""
    return messages[index]["role"] == ASSISTANT and all(message["role"] != "user" for message in messages[index + 1 :])


def _short(text: str) -> str:
    words = " ".join(text[: 2 * _SHOWN].split())
    return repr(words[:_SHOWN] + "..." if len(text) > _SHOWN else words)
