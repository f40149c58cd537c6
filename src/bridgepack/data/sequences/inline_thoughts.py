"""Thoughts that an answer has in its text under markers that the chat template does not know; and moves them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bridgepack.config.layouts.keys import REASONING
from bridgepack.data.tokenizers.templates import names_field
from bridgepack.errors import TokenizerError
from bridgepack.records import ASSISTANT, INLINE_ANSWER_MARKERS, INLINE_THOUGHT_MARKERS, THOUGHT_MARKERS

_FIELD = "reasoning_content"


class InlineThoughts(NamedTuple):
    """Thoughts that begin an answer."""

    thoughts: str
    answer: str  #: what follows them, without markers of its own
    opening: str
    why_kept: str = ""  #: why they stay text, if they do


class ThoughtMover:
    """Finds such thoughts under one template, and moves them to where it has thoughts."""

    def __init__(self, template: str) -> None:
        """Take a chat template."""
        self._markers = [
            (first, last) for first, last, _ in INLINE_THOUGHT_MARKERS if first not in template and last not in template
        ]
        self._openings = tuple(first for first, _ in self._markers)
        #: markers that the template knows and that close nothing else
        self._own_markers = [(first, last) for first, last, is_own in THOUGHT_MARKERS if is_own and last in template]
        self._initials = frozenset(first[0] for first, _ in (*self._markers, *self._own_markers))
        self._has_field = any(names_field(template, name) for name in REASONING)
        self._around = next(((first, last) for first, last, _ in THOUGHT_MARKERS if last in template), None)

    def may_begin(self, content: Any) -> bool:
        """Return whether a content may begin with thoughts under any markers, by its first letter."""
        return type(content) is str and content.lstrip()[:1] in self._initials

    def require_thoughts(self) -> None:
        """Raise TokenizerError for a template that has no thoughts, so that none can be moved."""
        if not self._has_field and self._around is None:
            raise TokenizerError(
                "preprocessing.inline_thoughts is move, and the chat template has no thoughts to move them to. Set it "
                "to keep, or tokenizer.chat_template to a template with thoughts.",
                field="preprocessing.inline_thoughts",
            )

    def find(self, message: Mapping[str, Any]) -> InlineThoughts | None:
        """Return the thoughts that an answer begins with under markers that the template does not know."""
        content = message["content"]
        if type(content) is not str or message["role"] != ASSISTANT or not content.lstrip().startswith(self._openings):
            return None
        text = content.lstrip()
        opening, closing = next(marks for marks in self._markers if text.startswith(marks[0]))
        inner, end, text_after = text[len(opening) :].partition(closing)
        answer = text_after.strip()
        for before, after in INLINE_ANSWER_MARKERS:
            if answer.startswith(before):
                answer = answer.removeprefix(before).removesuffix(after).strip()
        why = ""
        if not end:
            why = f"{closing!r} is missing"
        elif opening in inner or opening in text_after or closing in text_after:
            why = "the markers are nested, or stand twice"
        elif any(message.get(name) for name in REASONING):
            why = "the turn has other thoughts"
        return InlineThoughts(inner.strip(), answer, opening, why)

    def why_odd(self, message: Mapping[str, Any]) -> str:
        """Return what is wrong with the thoughts of an answer under the template's own markers; empty if nothing is."""
        content = message["content"]
        if type(content) is not str or message["role"] != ASSISTANT:
            return ""
        for opening, closing in self._own_markers:
            text = content.lstrip()
            if text.startswith(opening):
                inner, end, _ = text[len(opening) :].partition(closing)
                if not end:
                    return f"begins with {opening!r}, and {closing!r} is missing, so it is no thought to the template"
                if opening in inner:
                    return f"has {opening!r} twice before {closing!r}; templates leave out what is before the last"
        return ""

    def move(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return an answer with its thoughts where the template has them; itself if it has none, or they stay text."""
        inline = self.find(message)
        if inline is None or inline.why_kept:
            return message
        if self._has_field:
            return {**message, "content": inline.answer, _FIELD: inline.thoughts}
        assert self._around is not None
        first, last = self._around
        return {**message, "content": f"{first}\n{inline.thoughts}\n{last}\n\n{inline.answer}"}
