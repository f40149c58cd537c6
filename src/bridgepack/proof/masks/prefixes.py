"""Derives what the assistant wrote from renders of a conversation's prefixes: the text that each turn adds.

The generation prompt is not the assistant's text; what its turn adds after it is. Templates can be unstable: Qwen3's
writes the thoughts of only the last answer, so that a conversation does not start with the render of its prefix. If
the difference is understood (a turn lost its beginning), it is taken into account; otherwise the turn is not judged.

Shares no code with the build's tokenisation: neither the compiled template nor its engines.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jinja2.exceptions import TemplateError

from bridgepack.data.tokenizers.texts import common_prefix, is_unicode
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.geometry import IntArray
from bridgepack.proof.masks.votes import (
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    leave_blanks,
    no_votes,
    token_bounds,
    without_open_tag,
)
from bridgepack.records import TokenArray

Messages = Sequence[Mapping[str, Any]]
#: Returns the text of messages, followed by a generation prompt if `has_prompt`; None if the template rejects them.
Render = Callable[..., str | None]
ASSISTANT = "assistant"
#: Words that replace a message's own; they have no character in common.
_OTHER_WORDS = ("Qzeroq", "8888")

REFUSED = "the template refuses a part of the conversation"
UNSTABLE = "the template renders a turn differently once the conversation continues"
NO_PROMPT = "the template has no generation prompt before a turn, so the turn's header is not judged"
OTHER_PROMPT = "the template's generation prompt is not how it begins a turn, so the turn's header is not judged"
PROMPT_GOES_ON = "the template's generation prompt begins the answer, too, so the turn's header is not judged"
MOVED = "the template writes another message after the turn, so the turn's end is not judged"
INNER_END = "the template ends a turn only once the conversation goes on, so the turn's end is not judged"
NOTHING_WRITTEN = "the template writes nothing of an assistant turn"


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


class _Start(NamedTuple):
    floor: int | None  #: text before it is not part of this turn; None if unknown
    first: int | None  #: first character of the assistant; the text between is not judged. None if unknown.


def derive_from_prefixes(text: str, roles: Sequence[str], renders: Renders, inner_end: str = "") -> Derivation:
    """Return the derivation of a rendered conversation by prefixes.

    `inner_end` ends turns that the conversation goes on behind, and not the last, of templates that do so.
    """
    return _Walk(text, roles, renders, inner_end.rstrip()).derivation()


class _Walk:
    """One walk through the assistant's turns, in order; text before `_known_to` is decided or not judged."""

    def __init__(self, text: str, roles: Sequence[str], renders: Renders, inner_end: str) -> None:
        self._text, self._roles, self._renders = text, roles, renders
        self._inner_end = inner_end
        self._votes = no_votes(len(text))
        self._known_to: int | None = 0
        self._reasons: dict[str, None] = {}

    def derivation(self) -> Derivation:
        turns: list[Span | None] = []
        for index in (index for index, role in enumerate(self._roles) if role == ASSISTANT):
            turns.append(self._turn(index))
        if self._known_to is not None:
            self._votes[self._known_to :] = NOT_TRAINED
        leave_blanks(self._votes, self._text, turns)
        return Derivation(votes=self._votes, turns=tuple(turns), reasons=tuple(self._reasons))

    def _turn(self, index: int) -> Span | None:
        start = self._start(index)
        if self._known_to is None:
            self._known_to = self._length(index)
        if start.floor is not None and start.floor < (self._known_to or 0):
            self._reasons[UNSTABLE] = None
            start = _Start(None, None)
        if start.floor is not None and self._known_to is not None:
            self._votes[self._known_to : start.floor] = NOT_TRAINED
        self._known_to = None
        if start.first is None:
            self._known_to = self._length_through(index)
            return None
        stop = self._stop(index, start.first)
        if stop is None:
            self._open_ended(index, start.first)
            return None
        if stop < start.first:
            self._reasons[NOTHING_WRITTEN] = None
            self._known_to = self._length_through(index)
            return None
        self._votes[start.first : stop] = TRAINED
        if num_end := self._num_inner_end(stop):
            self._reasons[INNER_END] = None
            stop += num_end
        self._known_to = stop
        return start.first, stop

    def _start(self, index: int) -> _Start:
        before, with_prompt = self._renders.before(index), self._renders.with_prompt(index)
        is_shown = with_prompt is not None and with_prompt != before and self._text.startswith(with_prompt)
        if with_prompt is not None and is_shown and self._has_usual_prompt(index):
            if not self._renders.prompt_goes_on:
                return _Start(len(with_prompt), len(with_prompt))
            self._reasons[PROMPT_GOES_ON] = None
            return _Start(self._length(index), len(with_prompt))
        floor = self._length(index)
        opening = self._renders.up_to_words(index)
        if opening is None or not self._text.startswith(opening) or len(opening) < (floor or 0):
            self._reasons[REFUSED if opening is None else UNSTABLE] = None
            return _Start(floor, None)
        if len(opening) != floor:
            self._reasons[NO_PROMPT if with_prompt in (None, before) else OTHER_PROMPT] = None
        return _Start(floor, len(opening))

    def _has_usual_prompt(self, index: int) -> bool:
        """Return whether a turn has the generation prompt of the first; some templates write none behind an answer."""
        is_again = index > 0 and self._roles[index - 1] == ASSISTANT
        return not is_again or self._renders.prompt(index) == self._renders.prompt(self._roles.index(ASSISTANT))

    def _length(self, index: int) -> int | None:
        """Return the length of the text of the messages before one, or None if the whole does not begin with it.

        With the end of an answer that only the next message writes.
        """
        before = self._renders.before(index)
        if before is None or not self._text.startswith(before):
            return None
        is_answer = index > 0 and self._roles[index - 1] == ASSISTANT
        return len(before) + (self._num_inner_end(len(before)) if is_answer else 0)

    def _length_through(self, index: int) -> int | None:
        """Return the length of the text through a turn; None if unknown, or if it is left out only while it is last.

        So does Nemotron's template with an empty answer.
        """
        is_left_out = self._renders.before(index + 1) == self._renders.before(index)
        return None if is_left_out and self._renders.without(index) != self._text else self._length(index + 1)

    def _num_inner_end(self, place: int) -> int:
        """Return how many characters of an end stand at a place that only inner answers have."""
        return len(self._inner_end) if self._text.startswith(self._inner_end, place) else 0

    def _stop(self, index: int, first: int) -> int | None:
        """Return a turn's end: that of the conversation up to it, allowing for a beginning that it lost since."""
        through = self._renders.before(index + 1)
        if through is None or not through.startswith(self._text[:first]):
            return None
        if self._text.startswith(through):
            return None if self._renders.num_moved(index) else len(through)
        turn_text = through[first:]
        # The rest must contain all that follows the words: of "><|return|>", ">" is not a turn without its beginning.
        for num_lost in range(1, len(turn_text) - max(self._renders.num_closing(index), 1) + 1):
            if self._text.startswith(turn_text[num_lost:], first):
                return first + len(turn_text) - num_lost if turn_text[num_lost:].strip() else None
        return None

    def _open_ended(self, index: int, first: int) -> None:
        """Judge parts of a turn whose end is unknown: its own words, and the text from the next message's words."""
        through = self._renders.before(index + 1)
        num_moved = 0 if through is None else self._renders.num_moved(index)
        self._reasons[REFUSED if through is None else MOVED if num_moved else UNSTABLE] = None
        through = through and through[: len(through) - num_moved]
        if through is not None and through.startswith(self._text[:first]):
            length = len(
                without_open_tag(self._text[first : first + common_prefix(through[first:], self._text[first:])])
            )
            self._votes[first : first + length] = TRAINED
            leave_blanks(self._votes, self._text, [(first, first + length)])
        following = self._renders.up_to_words(index + 1) if index + 1 < len(self._roles) else None
        if following is not None and self._roles[index + 1] != ASSISTANT:
            num_shared = common_prefix(following, self._text)
            self._known_to = num_shared if num_shared == len(following) and num_shared >= first else None


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
