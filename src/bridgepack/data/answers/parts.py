"""Turns in which what a tool returned stands inside the assistant's own message, taken apart.

Gemma 4's template writes the field `tool_responses` of an answer behind its calls, and the answer's text behind them.
What stands before and behind the results are answers of their own, as they are where results are messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Self

from bridgepack.config.layouts.keys import CALL_RESULTS, REASONING, TURN_RESULTS
from bridgepack.data.answers.marking import Content, Messages, Spot, Text
from bridgepack.data.answers.regions import UnplaceableError
from bridgepack.data.tokenizers.templates import names_field
from bridgepack.records import ASSISTANT

_TOOL = "tool"


class Part(NamedTuple):
    """What a message says without a result between it."""

    message: int
    role: str
    contents: frozenset[Content]  #: empty for a whole message


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnParts:
    """The turns of a conversation: its messages, and those with results inside as several."""

    messages: Messages
    parts: tuple[Part, ...]
    texts: list[Text]  #: of parts: `message` is the part's position

    @classmethod
    def of(cls, messages: Messages, texts: Sequence[Text], spots: Sequence[Spot], template: str) -> Self:
        """Return the turns of messages, from their texts and where a render of `template` has these.

        Raises:
            UnplaceableError: a message has results, and it is unknown where the template writes them.
        """
        parts: list[Part] = []
        part_of: dict[int, int] = {}
        first_parts: list[int] = []
        for index, message in enumerate(messages):
            first_parts.append(len(parts))
            runs = _runs(index, texts, spots) if message["role"] == ASSISTANT and has_results(message) else []
            if not any(is_result for is_result, _ in runs):
                _refuse_unseen(index, message, template)
                parts.append(Part(index, message["role"], frozenset()))
                continue
            for is_result, run in runs:
                if any(part_of.setdefault(text, len(parts)) != len(parts) for text in run):
                    raise UnplaceableError(f"turn {index + 1} has a text on both sides of a result")
                contents = frozenset(texts[text].content for text in run)
                parts.append(Part(index, _TOOL if is_result else ASSISTANT, contents))
        first_parts.append(len(parts))
        part_texts = [
            text._replace(message=part_of.get(number, first_parts[text.message])) for number, text in enumerate(texts)
        ]
        return cls(messages=messages, parts=tuple(parts), texts=part_texts)

    @property
    def roles(self) -> list[str]:
        """The role of each part."""
        return [part.role for part in self.parts]

    def cuts_message(self, num_parts: int) -> bool:
        """Return whether the first parts end inside a message."""
        return 0 < num_parts < len(self.parts) and self.parts[num_parts - 1].message == self.parts[num_parts].message

    def first(self, num_parts: int) -> Messages:
        """Return the messages of the first parts, the last without what later parts say."""
        if not self.cuts_message(num_parts):
            stop = self.parts[num_parts].message if num_parts < len(self.parts) else len(self.messages)
            return self.messages[:stop]
        index = self.parts[num_parts].message
        contents = {item for part in self.parts[:num_parts] if part.message == index for item in part.contents}
        return [*self.messages[:index], _with_only(self.messages[index], contents)]

    def without_results(self, num_parts: int, words: str) -> Messages:
        """Return all messages, one without its results; with other words if its own follow the first parts."""
        index = self.parts[num_parts].message
        message = _with_only(self.messages[index], {*Content} - {Content.CONTEXT})
        is_before = any(item.message == index and Content.TEXT in item.contents for item in self.parts[:num_parts])
        content = message["content"] if is_before else words
        return [*self.messages[:index], {**message, "content": content}, *self.messages[index + 1 :]]

    def words_start(self, part: int, spots: Sequence[Spot]) -> int:
        """Return where the first words of a part begin, with the white space before them; -1 if it begins otherwise."""
        spot = next(spot for spot in spots if self.texts[spot.text].message == part)
        text = self.texts[spot.text]
        is_words = text.content is not Content.CALL and spot.piece == 0
        return spot.start - text.pieces[0][0] if is_words else -1


def has_results(message: Mapping[str, Any]) -> bool:
    """Return whether a message has a field with what a tool returned, or a call of it has such a key."""
    calls = message.get("tool_calls")
    mappings = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    functions = [call["function"] for call in mappings if isinstance(call.get("function"), Mapping)]
    return any(message.get(name) for name in TURN_RESULTS) or any(
        item.get(name) for item in (*mappings, *functions) for name in CALL_RESULTS
    )


def _refuse_unseen(index: int, message: Mapping[str, Any], template: str) -> None:
    """Raise an error of a message with results that the template names, and of which no text is in the render."""
    names = [name for name in (*TURN_RESULTS, *CALL_RESULTS) if names_field(template, name)]
    named_fields = {name: message.get(name) for name in names} if message["role"] == ASSISTANT else {}
    if names and has_results({**named_fields, "tool_calls": message.get("tool_calls")}):
        raise UnplaceableError(f"turn {index + 1} has a result without a text, so it is unknown where it stands")


def _runs(index: int, texts: Sequence[Text], spots: Sequence[Spot]) -> list[tuple[bool, list[int]]]:
    """Return the texts of a message in the order of the render, cut where a result begins or ends."""
    own_texts = (spot.text for spot in spots if texts[spot.text].message == index)
    runs = groupby(own_texts, key=lambda text: texts[text].content is Content.CONTEXT)
    return [(is_result, list(run)) for is_result, run in runs]


def _with_only(message: Mapping[str, Any], contents: set[Content]) -> dict[str, Any]:
    """Return a message that has only what is of some kinds."""
    lost_fields = {
        *(REASONING if Content.THOUGHT not in contents else ()),
        *(("tool_calls",) if Content.CALL not in contents else ()),
        *(TURN_RESULTS if Content.CONTEXT not in contents else ()),
    }
    copy = {name: value for name, value in message.items() if name not in lost_fields}
    if Content.TEXT not in contents:
        copy["content"] = ""
    if Content.CONTEXT not in contents and isinstance(copy.get("tool_calls"), list):
        copy["tool_calls"] = list(map(_without_result, copy["tool_calls"]))
    return copy


def _without_result(call: Any) -> Any:
    """Return a call without what its tool returned."""
    if not isinstance(call, Mapping):
        return call
    copy = {name: value for name, value in call.items() if name not in CALL_RESULTS}
    return {**copy, "function": _without_result(copy["function"])} if "function" in copy else copy
