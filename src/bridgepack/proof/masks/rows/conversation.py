"""A conversation as the proof reads it, and why a row cannot be read."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

ASSISTANT, SYSTEM = "assistant", "system"
#: Fields of thoughts: of DeepSeek's API, of OpenRouter's and vLLM's, and of gpt-oss's chat template.
REASONING = ("reasoning_content", "reasoning", "thinking")


class UnreadableRowError(Exception):
    """A row has a shape that the proof does not read; the text says which, in words that are equal for equal shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Messages in OpenAI's form, with what the chat template gets beside them."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None  #: schemas; None if there are none
    #: the row's own variables for the template
    template_kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    untrained_answers: frozenset[int] = frozenset()  #: positions of answers that the row excludes from training

    @property
    def answers(self) -> list[int]:
        """Positions of the assistant's messages."""
        return [index for index, message in enumerate(self.messages) if message["role"] == ASSISTANT]

    def piece(self, answers: Collection[int]) -> Self:
        """Return the messages up to the last of some answers, of which only these are trained."""
        stop = max(answers) + 1
        other_answers = frozenset(index for index in self.answers if index < stop and index not in answers)
        return replace(self, messages=self.messages[:stop], untrained_answers=other_answers)

    def without(self, positions: Collection[int]) -> Self:
        """Return the conversation without the messages at some positions."""
        indices = [index for index in range(len(self.messages)) if index not in positions]
        places = frozenset(place for place, index in enumerate(indices) if index in self.untrained_answers)
        return replace(self, messages=[self.messages[index] for index in indices], untrained_answers=places)

    def with_thoughts_for(self, template: str) -> Self:
        """Return the conversation with thoughts in the field that a chat template reads, or itself if they are there.

        Source: transformers 5.24, utils/chat_template_utils.py, copies `reasoning_content` to the fields that other
        templates read; earlier releases do not.
        """
        names = [name for name in REASONING if re.search(rf"\.{name}\b|['\"]{name}['\"]", template)]
        if not names:
            return self
        messages = [_with_thoughts(message, names[0]) for message in self.messages]
        return self if messages == self.messages else replace(self, messages=messages)


def _with_thoughts(message: dict[str, Any], field_name: str) -> dict[str, Any]:
    source = next((name for name in REASONING if message.get(name)), field_name)
    if message["role"] != ASSISTANT or source == field_name or message.get(field_name):
        return message
    return {**{name: value for name, value in message.items() if name != source}, field_name: message[source]}
