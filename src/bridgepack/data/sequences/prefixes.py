"""Finds the assistant's turns by comparing renders of a conversation's prefixes.

The results equal those of megatron-bridge 0.6.2 (data/conversation_processing.py); the contract tests compare them row
by row. They differ on purpose where a turn has no end, or where its own text quotes the marker that begins it.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError

_TOOL = "tool"
#: Tokens of white space between a start marker and the turn's text.
_MOST_BLANKS = 3
#: Characters of a longer added token, which no template needs, are not compared with the others.
_MOST_CHARACTERS = 256


class CuttingTokens:
    """Added tokens that always split a text: the text before one is tokenised independently of it."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        """Take the chat template's added tokens that no other added token can overlap, so they are always found."""
        added, isolated = [text for text in tokenizer.added_tokens if text], tokenizer.isolated_token_ids
        special = (text for text in tokenizer.special_tokens.values() if isinstance(text, str))
        source = (tokenizer.chat_template or "") + " ".join(special)
        sizes = {text: range(1, min(len(text), _MOST_CHARACTERS)) for text in added}
        beginnings = {text[:size] for text in added for size in sizes[text]}
        ends = {text[-size:] for text in added for size in sizes[text]}
        self._by_start: dict[str, list[tuple[str, int]]] = {}
        for text in added:
            index, is_short = tokenizer.added_tokens[text], len(text) <= _MOST_CHARACTERS
            if is_short and index in isolated and text in source and not _can_overlap(text, added, beginnings, ends):
                self._by_start.setdefault(text[0], []).append((text, index))

    @property
    def ids(self) -> dict[str, int]:
        """Text -> id of each token."""
        return {text: index for found in self._by_start.values() for text, index in found}

    def at(self, text: str, position: int) -> tuple[str, int] | None:
        """Return (text, id) of the token at a character, or None."""
        for token, index in self._by_start.get(text[position : position + 1], ()):
            if text.startswith(token, position):
                return token, index
        return None

    def lie_between(
        self, text: str, ends: Sequence[int], turns: Sequence[int], start: str, stops: tuple[str, ...]
    ) -> bool:
        """Return whether turns begin with a marker and end with one, where the renders around them end in a text.

        Each of these places must be the text's end or before a cutting token, so that its token is known.
        """
        begins_cut = self.at(start, 0) is not None
        for turn in turns:
            first, stop = ends[turn], ends[turn + 1]
            if first < 0 or not text.startswith(start, first) or not (begins_cut or self.at(text, first)):
                return False
            if stop != len(text) and self.at(text, stop) is None:
                return False
            written = stop - 1 if text[stop - 1] == "\n" else stop
            if not text.endswith(stops, first + len(start), written):
                return False
        return True


Message = Mapping[str, Any]


class FoundTurns(NamedTuple):
    """The assistant's turns of one conversation."""

    mask: list[int]  #: shape [num_tokens], 1 at the assistant's tokens
    #: assistant message without an end -> (start, stop) of its tokens, which is where the next turn or the text begins
    open_turns: Mapping[int, tuple[int, int]]
    has_only_trained: bool = False  #: untrained turns were not looked for


class Prefixes:
    """Renders of the first turns of one conversation, each made at most once."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        cutting: CuttingTokens,
        conversation: Conversation,
        text: str,
        ids: list[int],
        ends: Sequence[int] | None = None,
    ) -> None:
        """Take a conversation with its text and tokens; `ends` as of `RenderedChat`."""
        self._tokenizer, self._cutting, self._conversation = tokenizer, cutting, conversation
        self._text, self._input_ids = text, ids
        self._ends = ends
        self._known: dict[int, int | None] = {0: 0}
        self._exact: set[int] = set()
        self._places: dict[str, tuple[list[int], list[int]]] = {}

    def assistant_turns(
        self,
        markers: TurnMarkers,
        num_quoted: Callable[[Sequence[Message], Sequence[Sequence[int]]], int],
        *,
        includes_content: bool = True,
    ) -> FoundTurns | None:
        """Return the assistant's turns, each found between two renders; None if one is not found.

        Of a piece, only the trained turns are looked for. A turn ends at the last end marker before the next turn, so
        that markers inside its text do no harm. `num_quoted` counts the places of markers in the texts of messages.
        Without `includes_content`, only end markers are 1, for templates that mark the content themselves.
        """
        messages, ids, is_piece = self._conversation.messages, self._input_ids, self._conversation.is_piece
        turns = [index for index, message in enumerate(messages) if message["role"] == ASSISTANT]
        turns = self._conversation.trained if is_piece else turns
        mask, open_turns = [0] * len(ids), {}
        for turn in turns:
            search_from = self.shared_length(turn)
            limit = len(ids) if turn + 1 == len(messages) else self.shared_length(turn + 1)
            if search_from is None or limit is None or search_from >= limit:
                return None
            starts, own = markers.assistant_starts, messages[turn : turn + 1]
            if not self._is_exact(turn) and num_quoted(messages[:turn], starts):
                return None  # the window may begin in a turn before it
            content = self._content_start(starts, (search_from, limit), num_quoted(own, starts))
            if content is None:
                content = self._continuation(markers, turn, (search_from, limit))
            if content is None:
                return None
            num_ends = num_quoted(own, markers.ends)
            span = self._last_end(markers, (content, limit), num_ends)
            if span is None:
                span = limit, _end_at(ids, markers, limit)
                is_open = span[1] == limit
                has_all = 0 < num_ends <= len({place for place, _, _ in _ends_between(ids, markers, content, limit)})
                if not self._is_exact(turn + 1) and (is_open or not has_all):
                    return None  # what follows may still be the turn's text
                if is_open and _has_start(ids, markers, content, limit):
                    return None
                if is_open:
                    open_turns[turn] = content, limit
            end, after = span
            first = content if includes_content else end
            mask[first:after] = [1] * (after - first)
        return FoundTurns(mask, open_turns, is_piece) if turns else None

    def _last_end(self, markers: TurnMarkers, window: tuple[int, int], num_quoted: int) -> tuple[int, int] | None:
        """Return (start, stop) of the last end marker in a turn's window; None if that is the text's own.

        It is the template's if there are more than the text quotes, or if the window ends with it and another does not
        follow there.
        """
        ends, limit = _ends_between(self._input_ids, markers, *window), window[1]
        if not ends:
            return None
        end, _, after = max(ends, key=lambda found: (found[0], -found[1]))
        if len({place for place, _, _ in ends}) <= num_quoted:
            rest = self._tokenizer.decode(self._input_ids[after:limit])
            if rest.strip() or _end_at(self._input_ids, markers, limit) > limit:
                return None
        return end, after

    def _content_start(self, starts: Sequence[Sequence[int]], window: tuple[int, int], num_quoted: int) -> int | None:
        """Return where the assistant's text begins in a turn's window, or None.

        That is after the first start marker. If the turn's text quotes as many as there are, the first may be a quoted
        one: it is the template's only if the window begins with it. Templates that write the marker behind the user's
        turn have it right before the window.
        """
        ids, (search_from, limit) = self._input_ids, window
        are_quoted = sum(_count(ids, start, search_from, limit) for start in starts) <= num_quoted
        begun = self._begun_before(starts, search_from) if are_quoted else None
        if begun is not None:
            return begun
        found = ((find_span(ids, start, search_from), len(start)) for start in starts)
        place, size = min(((place, size) for place, size in found if place >= 0), default=(limit, 0))
        if not size or (are_quoted and place != search_from):
            return None
        return place + size if place + size <= limit else None

    def _continuation(self, markers: TurnMarkers, turn: int, window: tuple[int, int]) -> int | None:
        """Return where an answer to a tool's result begins that has no start of its own, or None.

        Some templates write results into the assistant's turn and go on behind them, as Gemma 4's and DeepSeek-V3's.
        The answer then begins where the render of the turns before it ends.
        Source: megatron-bridge 0.7, data/conversation_processing.py (_assistant_mask_from_conversation_turns).
        """
        messages, (start, limit) = self._conversation.messages, window
        if turn == 0 or messages[turn - 1]["role"] != _TOOL or not self._is_exact(turn):
            return None
        text = self._tokenizer.decode(self._input_ids[start:limit])
        begins_turn = self._input_ids[start] in markers.openers or any(one in text for one in markers.start_texts)
        return None if begins_turn else start

    def _begun_before(self, starts: Sequence[Sequence[int]], place: int) -> int | None:
        """Return the end of a start marker right before a place, or with only white space between; None if none."""
        for stop in range(place, max(place - _MOST_BLANKS, 0), -1):
            if any(self._input_ids[max(0, stop - len(start)) : stop] == list(start) for start in starts):
                return None if self._tokenizer.decode(self._input_ids[stop:place]).strip() else stop
        return None

    def _is_exact(self, num_turns: int) -> bool:
        """Return whether the whole begins with the text of its first turns, after `shared_length` found that."""
        return num_turns in (0, len(self._conversation.messages)) or num_turns in self._exact

    def shared_length(self, num_turns: int) -> int | None:
        """Return how many leading tokens the first turns share with the whole; None if the template rejects them."""
        if num_turns not in self._known:
            try:
                self._known[num_turns] = self.required_length(num_turns)
            except RowError:
                self._known[num_turns] = None
        return self._known[num_turns]

    def required_length(self, num_turns: int) -> int:
        """Return how many leading tokens the first turns share with the whole.

        Raises:
            RowError: the template rejects the first turns.
        """
        known = self._known.get(num_turns)
        if known is not None:
            return known
        prefix, boundary = self._render(num_turns), None
        if self._text.startswith(prefix):
            self._exact.add(num_turns)
            boundary = self._token_at(len(prefix))
        if boundary is not None:
            return boundary
        (ids, _) = self._tokenizer.engine.encode_flat([prefix])
        size = min(len(ids), len(self._input_ids))
        differs = ids[:size] != np.array(self._input_ids[:size], dtype=ids.dtype)
        return int(differs.argmax()) if differs.any() else size

    def _render(self, num_turns: int) -> str:
        """Return the render of the first turns; raises RowError if the template rejects them."""
        if self._ends is not None and self._ends[num_turns] >= 0:
            return self._text[: self._ends[num_turns]]
        chat = self._conversation
        return self._tokenizer.render_text(chat.messages[:num_turns], chat.tools, chat.template_kwargs)

    def _token_at(self, position: int) -> int | None:
        """Return the index of the token at a character if it always splits the text, else None.

        The text before such a token is tokenised independently of what follows, so the prefix's tokens are exactly
        the tokens before it.
        """
        if position == len(self._text):
            return len(self._input_ids)
        found = self._cutting.at(self._text, position)
        if found is None:
            return None
        token, index = found
        if token not in self._places:
            characters = [match.start() for match in re.finditer(re.escape(token), self._text)]
            self._places[token] = characters, [place for place, other in enumerate(self._input_ids) if other == index]
        characters, tokens = self._places[token]
        return tokens[bisect_left(characters, position)] if len(characters) == len(tokens) else None


def find_span(ids: list[int], pattern: Sequence[int], start: int = 0, stop: int | None = None) -> int:
    """Return where `pattern` first occurs inside `ids[start:stop]`, or -1: [5, 1, 2, 1, 2], [1, 2], start 2 -> 3."""
    wanted = list(pattern)
    last = (len(ids) if stop is None else min(stop, len(ids))) - len(wanted)
    position = start
    while wanted and position <= last:
        try:
            position = ids.index(wanted[0], position, last + 1)
        except ValueError:
            return -1
        if ids[position : position + len(wanted)] == wanted:
            return position
        position += 1
    return -1


def _count(ids: list[int], pattern: Sequence[int], start: int, stop: int) -> int:
    num, place = 0, find_span(ids, pattern, start, stop)
    while place >= 0:
        num, place = num + 1, find_span(ids, pattern, place + 1, stop)
    return num


def _end_at(ids: list[int], markers: TurnMarkers, place: int) -> int:
    """Return the stop of the end marker at a place; the place itself if there is none."""
    return next((place + len(end) for end in markers.ends if ids[place : place + len(end)] == list(end)), place)


def _has_start(ids: list[int], markers: TurnMarkers, start: int, stop: int) -> bool:
    return any(find_span(ids, marker, start, stop) >= 0 for _, marker in markers.all_starts)


def _ends_between(ids: list[int], markers: TurnMarkers, content: int, limit: int) -> list[tuple[int, int, int]]:
    """Return (start, priority, stop) of every end marker in `[content, limit)`."""
    ends = []
    for priority, marker in enumerate(markers.ends):
        position = find_span(ids, marker, content, limit)
        while position >= 0:
            ends.append((position, priority, position + len(marker)))
            position = find_span(ids, marker, position + 1, limit)
    return ends


def _can_overlap(text: str, added: Collection[str], beginnings: Container[str], ends: Container[str]) -> bool:
    """Return whether a text can overlap an added token: one contains the other, or an end of one begins the other.

    Shorter beginnings and ends of the added tokens, a thousand in some vocabularies, are given as sets.
    """
    if any(text != other and (text in other or other in text) for other in added):
        return True
    return any(text[:size] in ends or text[size:] in beginnings for size in range(1, len(text)))
