"""Finds the assistant's turns by comparing renders of a conversation's prefixes.

The results equal those of megatron-bridge 0.6.2 (data/conversation_processing.py); the contract tests compare them row
by row.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError


class CuttingTokens:
    """Added tokens that always split a text: the text before one is tokenised independently of it."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        """Take the chat template's added tokens that no other added token can overlap, so they are always found."""
        added, isolated = [text for text in tokenizer.added_tokens if text], tokenizer.isolated_token_ids
        special = (text for text in tokenizer.special_tokens.values() if isinstance(text, str))
        source = (tokenizer.chat_template or "") + " ".join(special)
        self._by_start: dict[str, list[tuple[str, int]]] = {}
        for text in added:
            index = tokenizer.added_tokens[text]
            if index in isolated and text in source and not any(_overlap(text, other) for other in added):
                self._by_start.setdefault(text[0], []).append((text, index))

    def at(self, text: str, position: int) -> tuple[str, int] | None:
        """Return (text, id) of the token at a character, or None."""
        for token, index in self._by_start.get(text[position : position + 1], ()):
            if text.startswith(token, position):
                return token, index
        return None


class Prefixes:
    """Renders of the first turns of one conversation, each made once."""

    def __init__(
        self, tokenizer: ChatTokenizer, cutting: CuttingTokens, conversation: Conversation, text: str, ids: list[int]
    ) -> None:
        self._tokenizer, self._cutting, self._conversation = tokenizer, cutting, conversation
        self._text, self._input_ids = text, ids
        self._known: dict[int, int | None] = {0: 0}
        self._places: dict[str, tuple[list[int], list[int]]] = {}

    def assistant_mask(self, markers: TurnMarkers, *, includes_content: bool = True) -> list[int] | None:
        """Return the mask, finding each assistant turn between two renders; None if a turn is not found.

        A turn ends at the last end marker before the next turn, so that markers inside its text do no harm. Without
        `includes_content`, only end markers are 1, for templates that mark the content themselves.
        """
        messages, ids = self._conversation.messages, self._input_ids
        turns = [index for index, message in enumerate(messages) if message["role"] == ASSISTANT]
        mask = [0] * len(ids)
        for turn in turns:
            search_from = self.shared_length(turn)
            limit = len(ids) if turn + 1 == len(messages) else self.shared_length(turn + 1)
            if search_from is None or limit is None or search_from >= limit:
                return None
            starts = (markers.starts[ASSISTANT], *markers.more_starts)
            found = ((find_span(ids, start, search_from), len(start)) for start in starts)
            content = min((place + size for place, size in found if place >= 0), default=limit + 1)
            if content > limit:
                return None
            ends = _ends_between(ids, markers, content, limit)
            if not ends:
                return None
            end, _, after = max(ends, key=lambda found: (found[0], -found[1]))
            first = content if includes_content else end
            mask[first:after] = [1] * (after - first)
        return mask if turns else None

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
        chat = self._conversation
        prefix = self._tokenizer.render_text(chat.messages[:num_turns], chat.tools, chat.template_kwargs)
        boundary = self._token_at(len(prefix)) if self._text.startswith(prefix) else None
        if boundary is not None:
            return boundary
        (ids, _) = self._tokenizer.engine.encode_flat([prefix])
        size = min(len(ids), len(self._input_ids))
        differs = ids[:size] != np.array(self._input_ids[:size], dtype=ids.dtype)
        return int(differs.argmax()) if differs.any() else size

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


def _ends_between(ids: list[int], markers: TurnMarkers, content: int, limit: int) -> list[tuple[int, int, int]]:
    """Return (start, priority, stop) of every end marker in `[content, limit)`."""
    ends = []
    for priority, marker in enumerate(markers.ends):
        position = find_span(ids, marker, content, limit)
        while position >= 0:
            ends.append((position, priority, position + len(marker)))
            position = find_span(ids, marker, position + 1, limit)
    return ends


def _overlap(text: str, other: str) -> bool:
    """Return whether two texts can overlap: one contains the other, or an end of one is a beginning of the other."""
    if text != other and (text in other or other in text):
        return True
    sizes = range(1, min(len(text), len(other)))
    return any(text[:size] == other[-size:] or text[-size:] == other[:size] for size in sizes)
