"""Renders conversations by transformers alone: whole, up to a message, and with other words in a message.

Shares no code with the build's tokenisation: neither the compiled template nor its engines.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from jinja2.exceptions import TemplateError

from bridgepack.data.tokenizers.texts import common_prefix, is_unicode, without_open_tag
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.geometry import IntArray
from bridgepack.proof.masks.votes import Span, token_bounds
from bridgepack.records import TokenArray

Messages = Sequence[Mapping[str, Any]]
#: Returns the text of messages, followed by a generation prompt if `has_prompt`; None if the template rejects them.
Render = Callable[..., str | None]
ASSISTANT = "assistant"
#: Words that replace a message's own; they have no character in common.
_OTHER_WORDS = ("Qzeroq", "8888")


class Renders:
    """Renders of one conversation's prefixes; None if the template rejects them."""

    def __init__(self, render: Render, messages: Messages, text: str, *, prompt_goes_on: bool) -> None:
        """Take a conversation with its rendered text.

        With `prompt_goes_on` the generation prompt also begins the answer, after the turn's header.
        """
        self.prompt_goes_on = prompt_goes_on
        self._render, self._messages = render, messages
        self._before: dict[int, str | None] = {len(messages): text}
        self._prompted: dict[int, str | None] = {}
        self._others: dict[int, tuple[str, str] | None] = {}

    def before(self, index: int) -> str | None:
        """Return the text of the messages before `index`; of all messages if `index` is past the last."""
        if index not in self._before:
            self._before[index] = self._render(self._messages[:index])
        return self._before[index]

    def with_prompt(self, index: int) -> str | None:
        """Return the text of the messages before `index`, with the generation prompt."""
        if index not in self._prompted:
            self._prompted[index] = self._render(self._messages[:index], has_prompt=True)
        return self._prompted[index]

    def without(self, index: int) -> str | None:
        """Return the text of all messages but one."""
        return self._render([*self._messages[:index], *self._messages[index + 1 :]])

    def prompt(self, index: int) -> str:
        """Return the generation prompt behind the messages before `index`; empty if unknown."""
        before, with_prompt = self.before(index), self.with_prompt(index)
        return "" if before is None or with_prompt is None else with_prompt[common_prefix(before, with_prompt) :]

    def words(self, index: int) -> Span | None:
        """Return where the text has a message's own words; None if nowhere, in several places, or changed."""
        start, texts, words = self.words_start(index), self._with_other_words(index), self.content(index)
        if start is None or texts is None or not words:
            return None
        behind = texts[0][len(texts[0]) - common_prefix(texts[0][::-1], texts[1][::-1]) :]
        is_there = self.before(len(self._messages)) == texts[0][:start] + words + behind
        return (start, start + len(words)) if is_there else None

    def words_start(self, index: int) -> int | None:
        """Return where the text first has what a message's own words change; None if that is unknown."""
        texts, text = self._with_other_words(index), self.before(len(self._messages))
        start = 0 if texts is None else common_prefix(*texts)
        return None if texts is None or text is None or not text.startswith(texts[0][:start]) else start

    def _with_other_words(self, index: int) -> tuple[str, str] | None:
        """Return two renders of all messages with other words in one; None if they are rejected or lack the words."""
        if index not in self._others:
            self._others[index] = _with_other_words(self._render, self._messages, index)
        return self._others[index]

    def content(self, index: int) -> str:
        """Return a message's own words without white space around them; empty if they are no text."""
        words = self._messages[index].get("content")
        return words.strip() if isinstance(words, str) else ""

    def up_to_words(self, index: int) -> str | None:
        """Return the text up to a message's own words."""
        return opening_of(self._render, self._messages[: index + 1], index)

    def num_closing(self, index: int) -> int:
        """Return how many characters follow a message's own words if it is the last; 0 if unknown."""
        texts = _with_other_words(self._render, self._messages[: index + 1], index)
        return 0 if texts is None else common_prefix(texts[0][::-1], texts[1][::-1])

    def num_moved(self, index: int) -> int:
        """Return how many characters follow a message's own words where another one's are among them; 0 elsewhere."""
        messages, text, closing = self._messages[: index + 1], self.before(index + 1) or "", self.num_closing(index)
        tail = text[len(text) - closing :]
        for place, message in enumerate(messages[:-1]):
            words = message.get("content")
            if isinstance(words, str) and words.strip() and words.strip() in tail:
                new_message = {**message, "content": _OTHER_WORDS[0]}
                new_text = self._render([*messages[:place], new_message, *messages[place + 1 :]])
                if new_text is not None and not new_text.endswith(tail):
                    return closing
        return 0


def opening_of(render: Render, messages: Messages, index: int) -> str | None:
    """Return the text up to a message's own words: the common prefix of renders with other words there."""
    texts = _with_other_words(render, messages, index)
    return None if texts is None else texts[0][: common_prefix(*texts)]


def _with_other_words(render: Render, messages: Messages, index: int) -> tuple[str, str] | None:
    """Return two renders with other words in one message; None if they are rejected or lack the words."""
    before, message, behind = messages[:index], messages[index], messages[index + 1 :]
    first, second = (render([*before, {**message, "content": words}, *behind]) for words in _OTHER_WORDS)
    return None if first is None or second is None or first == second else (first, second)


Kwargs = Mapping[str, Any]
_BLANKS = "a b\nc"
#: Errors that a template raises for a conversation that it rejects.
_REFUSALS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)


class Rendering:
    """A tokenizer and its chat template, used only through transformers and `tokenizers`."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

        # not `render_jinja_template`, which from transformers 5.24 on gives the template fields that the row lacks
        self._template: Any = _compile_jinja_template(tokenizer.chat_template)
        self._render_marked: Callable[..., Any] = _render_with_assistant_indices
        self._variables = tokenizer.template_variables
        self._backend = tokenizer.backend
        #: The tokenizer reports tokens' character positions.
        self.knows_places = self._backend is not None
        self._keeps_blanks = tokenizer.decode(tokenizer.encode(_BLANKS)) == _BLANKS
        self._goes_on: dict[str, bool] = {}
        #: text that the template writes once after a whole chat, whoever spoke last; renders lack it
        self.tail = ""
        self.tail = _tail_of(self.text)

    def prompt_goes_on(self, kwargs: Kwargs) -> bool:
        """Return whether the generation prompt of a row with these variables also begins the answer, after its header.

        Then some answer begins differently: the last, or one before a user turn.
        """
        key = repr(sorted(kwargs.items()))
        if key not in self._goes_on:
            self._goes_on[key] = _prompt_goes_on(partial(self.text, kwargs=kwargs))
        return self._goes_on[key]

    def tokens(self, text: str) -> tuple[TokenArray, IntArray]:
        """Return a text's tokens, without adding special tokens.

        Returns:
            Ids, shape [num_tokens], int32; (start, stop) in characters, shape [num_tokens, 2], int64.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        bounds = token_bounds(encoding.offsets, closes_gaps=self._keeps_blanks)
        return np.array(encoding.ids, dtype=np.int32), bounds

    def text(
        self, messages: Messages, *, tools: Any = None, has_prompt: bool = False, kwargs: Kwargs = MappingProxyType({})
    ) -> str | None:
        """Return the text of a conversation with its own variables, without `tail`; None if it is rejected."""
        arguments = self._arguments(messages, tools, kwargs, has_prompt=has_prompt)
        try:
            text = self._template.render(**arguments)
        except _REFUSALS:
            return None
        return text.removesuffix(self.tail) if isinstance(text, str) and is_unicode(text) else None

    def render_marked(self, messages: Messages, tools: Any, kwargs: Kwargs) -> tuple[str, list[Span]] | None:
        """Return (text of a conversation, positions of the template's generation blocks), both from transformers."""
        arguments = self._arguments(messages, tools, kwargs, has_prompt=False)
        try:
            text, places = self._render_marked(self._template, **arguments)
        except _REFUSALS:
            return None
        return (text.removesuffix(self.tail), places) if is_unicode(text) else None

    def _arguments(self, messages: Messages, tools: Any, kwargs: Kwargs, *, has_prompt: bool) -> dict[str, Any]:
        """Return the template's variables, as transformers gives them."""
        variables = {"messages": list(messages), "tools": tools, "documents": None, "add_generation_prompt": has_prompt}
        return {**self._variables, **kwargs, **variables}


def _prompt_goes_on(render: Render) -> bool:
    question = [{"role": "user", "content": "Qoneq"}]
    with_prompt = render(question, has_prompt=True)
    if with_prompt is None:
        return False
    exchange = [*question, {"role": "assistant", "content": ""}]
    openings = [opening_of(render, [*exchange, *following], 1) for following in ([], question)]
    return any(text is not None and not text.startswith(with_prompt) for text in openings)


def _tail_of(render: Render) -> str:
    """Return the text that a template writes once after a whole chat, e.g. Phi-4-mini's `<|endoftext|>`; else ""."""
    first, second, third, fourth = ({"role": role, "content": f"Q{role}q"} for role in ("user", ASSISTANT) * 2)
    renders = [render(turns) for turns in ([first], [first, second], [first, second, third])]
    alone, chat = renders[0], render([first, second, third, fourth])
    if alone is None or chat is None:
        return ""
    tail = alone[len(without_open_tag(alone[: common_prefix(alone, chat)])) :]
    if not tail.strip() or chat.count(tail) != 1 or not all(text and text.endswith(tail) for text in (*renders, chat)):
        return ""
    end = chat.rpartition(str(fourth["content"]))[2].removesuffix(tail).rstrip()
    return tail if end and end in chat.partition(str(second["content"]))[2].partition(str(third["content"]))[0] else ""
