"""The layout that would read a dropped row, as the end of its message."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from bridgepack.config.layouts.detect import detect
from bridgepack.config.layouts.forms import Profile, profile_of
from bridgepack.config.layouts.rendered import has_rendered_turns
from bridgepack.config.layouts.sayings import as_flow
from bridgepack.config.recipe.layout import AnyLayout, ChatLayout, PromptCompletionLayout, TurnFromColumns
from bridgepack.errors import ConfigError

_RENDERED = "; its text is a rendered chat: split it at its turns into a column named messages"


def layout_hint(row: Mapping[str, Any], kind: str = "chat", detection_texts: Sequence[str] = ()) -> str:
    """Return which layout would read a row under a kind of preprocessing; empty if that is unclear.

    {"question": "2 + 2?", "answer": "4"} -> `; add {kind: chat, messages: [...]} to data.layout, as a list, or ..`
    {"text": "A document."} among chats   -> `; make its file a source of its own, with layout: {kind: text}`

    `detection_texts` are the layouts that were detected for its source, as text; () where the recipe has layouts.
    """
    return _hint(_Row(profile_of(row), row), kind, tuple(detection_texts))


class _Row:
    """A row that equals those with the same profile, so that a hint is worked out once for each."""

    def __init__(self, profile: Profile, row: Mapping[str, Any]) -> None:
        self.profile, self.row = profile, row

    def __eq__(self, value: object) -> bool:
        return isinstance(value, _Row) and self.profile == value.profile

    def __hash__(self) -> int:
        return hash(self.profile)


@lru_cache(maxsize=64)
def _hint(row: _Row, kind: str, detection_texts: tuple[str, ...]) -> str:
    try:
        layout = detect([row.row]).layout
    except ConfigError:
        texts = [value for value in row.row.values() if isinstance(value, str)]
        return _RENDERED if any(map(has_rendered_turns, texts)) else ""
    if kind == "prompt_completion":
        layout = as_prompt_completion(layout) or layout
    if layout.kind != kind:
        return f"; make its file a source of its own, with layout: {as_flow(layout)}"
    if not detection_texts:
        return f"; add {as_flow(layout)} to data.layout, as a list, or to layout of its source"
    entries = ", ".join([*detection_texts, as_flow(layout)])
    return f"; set data.layout to [{entries}], or layout of its source if it is one of several"


def as_prompt_completion(layout: AnyLayout) -> AnyLayout | None:
    """Return a layout of one question and its answer as prompt and completion; None if it has more than these."""
    if not isinstance(layout, ChatLayout) or len(layout.messages) != 2 or layout.tools:
        return None
    question, answer = layout.messages
    if not isinstance(question, TurnFromColumns) or not isinstance(answer, TurnFromColumns):
        return None
    if question.role != "user" or question.content is None or not isinstance(answer.content, str):
        return None
    if answer.reasoning_content or answer.tool_calls:
        return None
    ignore = {"ignore": layout.ignore} if layout.ignore else {}
    return PromptCompletionLayout(
        kind="prompt_completion", prompt=question.content, completion=answer.content, **ignore
    )
