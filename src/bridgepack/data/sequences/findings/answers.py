"""Finds what is odd about a conversation itself, whatever the template makes of it: answers, thoughts and media."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bridgepack.config.layouts.contents import is_empty
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.inline_thoughts import ThoughtMover
from bridgepack.data.sequences.marked_text import REFUSAL, split_thoughts
from bridgepack.data.sequences.media import has_hint, media_of
from bridgepack.data.sequences.mending import OLD_CALL
from bridgepack.records import ASSISTANT, THOUGHT_MARKERS, LostKind

#: What an answer of nothing but thoughts ends with.
_ENDS_OF_THOUGHTS = tuple(f"{closing}{space}" for _, closing, _ in THOUGHT_MARKERS for space in ("", "\n", "\n\n"))
#: Last letters of answers that may say nothing but thoughts, and of those that say nothing.
_LAST = frozenset({"", *(text[-1] for text in _ENDS_OF_THOUGHTS)})
_SAYS_SOMETHING = ("tool_calls", OLD_CALL, REFUSAL, "audio")


class AnswerFindings:
    """Finds answers that say nothing, media, and thoughts under markers that the template does not know."""

    def __init__(self, template: str) -> None:
        """Take a chat template."""
        self._thoughts = ThoughtMover(template)

    def find(self, case: ChatCase) -> Iterable[Loss]:
        """Return the findings of a conversation, the first of each kind."""
        return () if self._are_usual(case.conversation) else self._losses(case.conversation)

    def _losses(self, conversation: Conversation) -> Iterator[Loss]:
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

    def _are_usual(self, conversation: Conversation) -> bool:
        """Return whether no text can be a finding, by its first and last letters; fast path for most rows."""
        if not conversation.is_plain:
            return False
        for message in conversation.messages:
            content = message["content"]
            if message["role"] == ASSISTANT:
                last = content[-1:]
                if last in _LAST or last.isspace() or self._thoughts.may_begin(content):
                    return False
            elif has_hint(content):
                return False
        return True


def empty_answer(conversation: Conversation) -> int:
    """Return the position of the first trained answer that says nothing; -1 if there is none."""
    for index, message in enumerate(conversation.messages):
        content = message["content"]
        if content and type(content) is str and not content.isspace() and not content.endswith(_ENDS_OF_THOUGHTS):
            continue  # fast path for most turns
        if message["role"] == ASSISTANT and index not in conversation.untrained and _says_nothing(message):
            return index
    return -1


def _says_nothing(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    answer = split_thoughts(content)[2] if isinstance(content, str) else content
    return is_empty(answer) and not any(message.get(name) for name in _SAYS_SOMETHING)
