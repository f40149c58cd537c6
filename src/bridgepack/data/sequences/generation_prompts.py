"""Masks that train what the model must write and nothing that the server writes: `mask_generation_prompt`.

For each trained turn, S is what a server sends for the turns before it, with the generation prompt, and T is the
training text:

- T begins with S: the turn is trained from exactly there to its end. It may begin earlier than its markers say (what
  the model must write before them) or later (`<think>` that the server writes).
- T does not, because the turns before differ or because T shows the turn without the thought that S begins: the
  generation prompt alone is looked for where the turn begins. The turn is trained from behind all of it, or from behind
  its header, the part before a marker of thoughts. A part of what follows the header counts as the model's. What is
  trained is then as right as it can be; that the turns before differ is another finding.
- The template refuses the turns before, or begins the turn otherwise: the row is dropped.

Most rows need no render of S: where the template shows that its generation prompt is always the same
(`generation_prompt.fixed_prompt`), its tokens are looked for before the turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bridgepack.config.layouts.keys import REASONING
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.answers.scan import find_all
from bridgepack.data.sequences.chat_answers import turns_of
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.thoughts import has_thoughts
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.generation_prompt import fixed_prompt
from bridgepack.data.tokenizers.places import TokenPlaces, require_places
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import THOUGHT_MARKERS, DropReason, TokenArray

#: Rows may have variables of their own; the prompts of so many are kept.
_MOST_KNOWN = 64
_OPENINGS = tuple(opening for opening, _, _ in THOUGHT_MARKERS)
_CLOSINGS = tuple(closing for _, closing, _ in THOUGHT_MARKERS)
#: What to do about a row that is dropped.
_OFF = "set preprocessing.mask_generation_prompt to false, or correct the row"
_NO_THOUGHT = (
    "give the turn the thought that the generation prompt begins, e.g. as reasoning_content, set the template's switch "
    "for turns without thoughts, if it has one, give the turn weight 0 with preprocessing.message_weights mask, or set "
    "preprocessing.mask_generation_prompt to false"
)
_STRADDLES = (
    "use a template and a tokenizer with which the generation prompt ends where a token does, or set "
    "preprocessing.mask_generation_prompt to false"
)
_STRIPPED = (
    "the template strips its thought: set preprocessing.split_conversations to when_context_differs, or "
    "preprocessing.mask_generation_prompt to false"
)
#: (first, stop) in tokens.
Span = tuple[int, int]
#: (message, first, stop) of an answer; the message is `NO_ANSWER` if it is unknown.
Answer = tuple[int, int, int]


class _FixedPrompt(NamedTuple):
    """Tokens of a generation prompt that begins with a control token, so that they are the same behind every text."""

    header: tuple[int, ...]  #: before a control token that opens thoughts; all if there is none
    thought: tuple[int, ...]  #: from that token on


class GenerationPrompts:
    """Makes masks begin where the generation prompt of each trained turn ends."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing, facts: TemplateFacts) -> None:
        """Take a recipe's settings and the facts of its chat template.

        Raises:
            TokenizerError: the tokenizer does not report tokens' character positions.
        """
        require_places(tokenizer, "mask_generation_prompt is true", "Set it to false")
        self._tokenizer, self._only_last = tokenizer, settings.loss_mode == "last_turn"
        self._finds_ends = facts.markers is None  # only generation blocks tell what the assistant wrote
        self._splits = settings.split_conversations != "never"
        prompt = facts.generation_prompt
        self._known = {_key({}): None if prompt is None else self._tokens_of(prompt)}

    def correct(self, chat: RenderedChat, input_ids: TokenArray, answers: list[Answer]) -> list[Answer]:
        """Return the trained turns of a conversation from where the model begins them.

        `answers` are what markers or blocks tell, in tokens of `input_ids`, shape [num_tokens].

        Raises:
            RowError: it is unknown where a trained turn begins for the model, or a token lies across that place.
        """
        conversation = chat.conversation
        turns, trained_turns = self._turns(conversation)
        if not trained_turns:
            return answers
        spans, starts = [(start, stop) for _, start, stop in answers], None
        if not self._finds_ends and len(spans) == len(trained_turns):
            starts = self._starts_by_tokens(conversation.template_kwargs, input_ids, spans, len(turns))
        if starts is None:
            spans, starts = self._by_text(chat, turns, trained_turns, spans)
        edges = zip(trained_turns, starts, spans, strict=True)
        return [(turn, start, stop) for turn, start, (_, stop) in edges]

    def _turns(self, conversation: Conversation) -> tuple[list[int], list[int]]:
        """Return the positions of the assistant's messages, and of those that are trained."""
        turns = turns_of([message["role"] for message in conversation.messages])
        candidates = turns[-1:] if self._only_last else turns
        return turns, [turn for turn in candidates if turn not in conversation.untrained]

    def _starts_by_tokens(
        self, kwargs: Mapping[str, Any], ids: TokenArray, spans: Sequence[Span], num_turns: int
    ) -> list[int] | None:
        """Return where the model begins each span, if the tokens of a prompt that is always the same tell; else None.

        The prompt's header must occur once for each turn, so that each has its own.
        """
        prompt = self._find_fixed(kwargs)
        if prompt is None:
            return None
        header, thought = prompt
        places, starts = find_all(ids, header), []
        if len(places) != num_turns:
            return None
        for first, stop in spans:
            index = int(np.searchsorted(places, first, side="right")) - 1
            header_end = int(places[index]) + len(header) if index >= 0 else -1
            has_thought = tuple(ids[header_end : header_end + len(thought)].tolist()) == thought
            start = header_end + len(thought) if has_thought else header_end
            if index < 0 or first > header_end + len(thought) or start >= stop:
                return None
            if thought and not has_thought and ids[header_end] == thought[0]:  # the text may begin alike
                return None
            starts.append(start)
        return starts

    def _find_fixed(self, kwargs: Mapping[str, Any]) -> _FixedPrompt | None:
        key = _key(kwargs)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            text = fixed_prompt(self._tokenizer, kwargs)
            self._known[key] = None if text is None else self._tokens_of(text)
        return self._known[key]

    def _tokens_of(self, prompt: str) -> _FixedPrompt | None:
        """Return a prompt's tokens; None if what is beside it may change them."""
        ids, isolated_ids = tuple(self._tokenizer.encode(prompt)), self._tokenizer.isolated_token_ids
        if not ids or ids[0] not in isolated_ids:
            return None
        header = _header_of(prompt)
        num_header = len(self._tokenizer.encode(header))
        thought = ids[num_header:]
        if header != prompt and (not thought or thought[0] not in isolated_ids):
            return None
        return _FixedPrompt(ids[:num_header], thought)

    def _by_text(
        self, chat: RenderedChat, turns: Sequence[int], trained_turns: Sequence[int], spans: Sequence[Span]
    ) -> tuple[list[Span], list[int]]:
        """Return the span of each trained turn, and where the model begins it, from renders of what is served."""
        places = TokenPlaces.of(self._tokenizer, chat.text)
        begins: list[int] = []
        shown_flags: list[bool] = []
        for number, turn in enumerate(trained_turns):
            served_text = self._render_served(chat.conversation, turn)
            is_shown = chat.text.startswith(served_text)
            first = int(places.starts[spans[number][0]]) if len(spans) == len(trained_turns) else None
            begins.append(len(served_text) if is_shown else self._behind_prompt(chat, turns, turn, served_text, first))
            shown_flags.append(is_shown)
        turn_spans = _spans_of_turns(spans, begins, places)
        starts = [
            self._token_from(places, place, chat.conversation, turn, is_shown=is_shown)
            for place, turn, is_shown in zip(begins, trained_turns, shown_flags, strict=True)
        ]
        if self._finds_ends:
            turn_spans = [
                self._through_end(chat, turn, places, span)
                for turn, span in zip(trained_turns, turn_spans, strict=True)
            ]
        limits = [0, *(stop for _, stop in turn_spans)]
        for turn, start, (_, stop), limit in zip(trained_turns, starts, turn_spans, limits[:-1], strict=True):
            if not limit <= start < stop:
                detail = f"turn {turn + 1} (assistant): what follows the generation prompt in it is unknown; {_OFF}"
                raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
        return turn_spans, starts

    def _token_from(
        self, places: TokenPlaces, place: int, conversation: Conversation, turn: int, *, is_shown: bool
    ) -> int:
        """Return the token from which a turn is trained; the text has the prompt before it if that `is_shown`.

        Raises:
            RowError: a token lies across the place.
        """
        try:
            return places.token_from(place)
        except RowError as error:
            message, where = conversation.messages[turn], f"turn {turn + 1} (assistant)"
            if is_shown:
                ends_at_once = places.text[place:].lstrip().startswith(_CLOSINGS)
                is_empty = ends_at_once and places.text[:place].rstrip().endswith(_OPENINGS)
                cure = _NO_THOUGHT if is_empty else _STRADDLES
            else:
                is_given = any(message.get(name) for name in REASONING) or has_thoughts(str(message["content"]))
                cure = _STRIPPED if is_given and not self._splits else _NO_THOUGHT
                where += " lacks what the generation prompt begins"
            raise RowError(error.reason, f"{where}: {error.detail}; {cure}") from None

    def _render_served(self, conversation: Conversation, turn: int) -> str:
        try:
            before = conversation.messages[:turn]
            return self._tokenizer.render_served(before, conversation.tools, conversation.template_kwargs)
        except RowError as error:
            raise _unknown_begin(turn, f"for the turns before it, {error.detail}") from None

    def _behind_prompt(
        self, chat: RenderedChat, turns: Sequence[int], turn: int, served_text: str, first: int | None
    ) -> int:
        """Return the character behind the generation prompt, or its header, where a turn begins.

        `first` is the turn's first character as its markers or blocks say. Without it, the headers must be as many as
        the turns.

        Raises:
            RowError: the turn begins otherwise.
        """
        conversation = chat.conversation
        before = self._tokenizer.render_text(
            conversation.messages[:turn], conversation.tools, conversation.template_kwargs
        )
        pairs = enumerate(zip(served_text, before, strict=False))
        prompt = served_text[
            next((at for at, (letter, letter_before) in pairs if letter != letter_before), len(before)) :
        ]
        if not prompt.strip() and first is not None:
            return first
        header = _header_of(prompt)
        if first is None and header.strip():
            places = _occurrences(chat.text, header, 0, len(chat.text))
            if len(places) == len(turns):
                first = places[turns.index(turn)] + len(header)
        for text in dict.fromkeys((prompt, header)):
            if first is not None and text.strip():
                matches = _occurrences(chat.text, text, first - len(text), first + len(text))
                if len(matches) == 1:
                    return matches[0] + len(text)
        cure = _NO_THOUGHT if header != prompt else _OFF
        raise _unknown_begin(turn, f"the turn does not begin with the generation prompt {prompt!r}", cure)

    def _through_end(self, chat: RenderedChat, turn: int, places: TokenPlaces, span: Span) -> Span:
        """Return a span from generation blocks with what the template writes behind it in its turn.

        White space at the end aside. If the turn looks otherwise once the conversation goes on, that is what stands
        behind the blocks there.
        """
        conversation, (first, stop) = chat.conversation, span
        text, blocks = self._tokenizer.render_marked(
            conversation.messages[: turn + 1], conversation.tools, conversation.template_kwargs
        )
        text, end = text.rstrip(), int(places.stops[stop - 1]) if stop else 0
        if chat.text.startswith(text):
            end = max(end, len(text))
        elif first < stop and blocks and chat.text.startswith(text[blocks[-1][1] :], end):
            end += len(text) - blocks[-1][1]
        return first, max(stop, int(np.searchsorted(places.starts, end, side="left")))


def _key(kwargs: Mapping[str, Any]) -> str:
    return repr(sorted(kwargs.items()))


def _spans_of_turns(spans: Sequence[Span], begins: Sequence[int], places: TokenPlaces) -> list[Span]:
    """Return the span of each turn: one each, or from several by where the turns begin, given in characters."""
    if len(spans) == len(begins):
        return list(spans)
    turn_spans: dict[int, Span] = {}
    for first, stop in spans:
        index = int(np.searchsorted(begins, int(places.stops[stop - 1]), side="left")) - 1
        if index >= 0:
            turn_spans[index] = turn_spans.get(index, (first, stop))[0], stop
    for index, place in enumerate(begins):
        start = int(np.searchsorted(places.starts, place, side="left"))
        turn_spans.setdefault(index, (start, start))
    return [turn_spans[index] for index in range(len(begins))]


def _header_of(prompt: str) -> str:
    """Return the part of a generation prompt before a marker of thoughts: `<bot><think>` -> `<bot>`."""
    return prompt[: min((at for opening in _OPENINGS if (at := prompt.find(opening)) >= 0), default=len(prompt))]


def _occurrences(text: str, part: str, first: int, stop: int) -> list[int]:
    """Return where a part occurs within `text[first:stop]`, overlaps included."""
    places, first = [], max(first, 0)
    while (at := text.find(part, first, stop)) >= 0:
        places.append(at)
        first = at + 1
    return places


def _unknown_begin(turn: int, why: str, cure: str = _OFF) -> RowError:
    detail = f"turn {turn + 1} (assistant): {why}, so it is unknown what the server writes; {cure}"
    return RowError(DropReason.NO_ASSISTANT_MASK, detail)
