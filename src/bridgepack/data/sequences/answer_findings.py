"""Finds what is odd about a conversation itself, whatever the template makes of it: answers, thoughts and media."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.config.layouts.contents import is_empty
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.inline_thoughts import ThoughtMover
from bridgepack.data.sequences.marked_text import REFUSAL
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.data.sequences.media import media_of
from bridgepack.data.sequences.mending import OLD_CALL
from bridgepack.records import LostKind

_SAYS_SOMETHING = ("tool_calls", OLD_CALL, REFUSAL, "audio")


class AnswerFindings:
    """Finds answers that say nothing, media, and thoughts under markers that the template does not know."""

    def __init__(self, template: str) -> None:
        """Take a chat template."""
        self._thoughts = ThoughtMover(template)

    def find(self, conversation: Conversation) -> Iterator[Loss]:
        """Yield the findings of a conversation, the first of each kind."""
        first_empty = empty_answer(conversation)
        if first_empty >= 0:
            fault = "is empty, so the model is trained to end at once"
            yield Loss(LostKind.EMPTY_ANSWER, f"turn {first_empty + 1} (assistant) {fault}")
        yield from media_of(conversation.messages)
        for index, message in enumerate(conversation.messages):
            if message["role"] != ASSISTANT or not self._thoughts.may_begin(message["content"]):
                continue
            fault = self._thoughts.why_odd(message)
            if inline := self._thoughts.find(message):
                why = f", which stays text: {inline.why_kept}" if inline.why_kept else ""
                fault = f"begins with {inline.opening!r}, which the chat template does not know{why}"
            if fault:
                yield Loss(LostKind.INLINE_THOUGHTS, f"turn {index + 1} (assistant) {fault}")
                return


def empty_answer(conversation: Conversation) -> int:
    """Return the position of the first trained answer that says nothing; -1 if there is none."""
    for index, message in enumerate(conversation.messages):
        content = message["content"]
        if content and type(content) is str and not content.isspace():  # fast path for most turns
            continue
        if message["role"] == ASSISTANT and index not in conversation.untrained and _says_nothing(message):
            return index
    return -1


def _says_nothing(message: Mapping[str, Any]) -> bool:
    return is_empty(message["content"]) and not any(message.get(name) for name in _SAYS_SOMETHING)
