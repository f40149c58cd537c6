"""How far renders of a conversation's first turns agree, token by token, with the whole conversation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from bridgepack.data.sequences import spans as masks
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError


class CuttingTokens:
    """Added tokens at which every text falls apart: what stands before one is tokenised without regard to it."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        """Take those of the chat template that are always found: no other added token can overlap with one."""
        added, isolated = [text for text in tokenizer.added_tokens if text], tokenizer.isolated_token_ids
        source = (tokenizer.chat_template or "") + " ".join(tokenizer.special_token_texts)
        self._ids = {
            text: index
            for text, index in tokenizer.added_tokens.items()
            if text and index in isolated and text in source and not any(_overlap(text, other) for other in added)
        }
        self._by_start: dict[str, list[str]] = {}
        for text in self._ids:
            self._by_start.setdefault(text[0], []).append(text)

    def at(self, text: str, position: int) -> tuple[str, int] | None:
        """Return the token that stands at a character, as text and id."""
        for token in self._by_start.get(text[position : position + 1], ()):
            if text.startswith(token, position):
                return token, self._ids[token]
        return None


class Prefixes:
    """Renders of the first turns of one conversation; each is made once."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        cutting: CuttingTokens,
        conversation: Conversation,
        text: str,
        input_ids: list[int],
    ) -> None:
        """Take a conversation with its text and tokens."""
        self._tokenizer = tokenizer
        self._cutting = cutting
        self._conversation = conversation
        self._text = text
        self._input_ids = input_ids
        self._known: dict[int, int | None] = {0: 0}
        self._places: dict[str, tuple[list[int], list[int]]] = {}

    def shared_length(self, num_turns: int) -> int | None:
        """Return the number of leading tokens shared, or None where the template refuses the prefix."""
        if num_turns not in self._known:
            try:
                self._known[num_turns] = self.required_length(num_turns)
            except RowError:
                self._known[num_turns] = None
        return self._known[num_turns]

    def required_length(self, num_turns: int) -> int:
        """Return the same.

        Raises:
            RowError: where the template refuses the prefix.
        """
        known = self._known.get(num_turns)
        if known is not None:
            return known
        prefix = self._tokenizer.render_text(self._conversation.messages[:num_turns], self._conversation.tools)
        boundary = self._token_at(len(prefix)) if self._text.startswith(prefix) else None
        if boundary is not None:
            return boundary
        (ids, _) = self._tokenizer.engine.encode_flat([prefix])
        return masks.common_prefix_length(ids.tolist(), self._input_ids)

    def _token_at(self, position: int) -> int | None:
        """Return the index of the token at a character where the text falls apart, or None.

        Text before such a token is tokenised without regard to what follows, so the prefix's tokens are exactly the
        tokens before it.
        """
        if position == len(self._text):
            return len(self._input_ids)
        found = self._cutting.at(self._text, position)
        if found is None:
            return None
        token, index = found
        if token not in self._places:
            self._places[token] = _positions(self._text, token), _indices(self._input_ids, index)
        characters, tokens = self._places[token]
        return tokens[bisect_left(characters, position)] if len(characters) == len(tokens) else None


def _positions(text: str, part: str) -> list[int]:
    found = []
    position = text.find(part)
    while position >= 0:
        found.append(position)
        position = text.find(part, position + len(part))
    return found


def _indices(ids: Sequence[int], token: int) -> list[int]:
    return [index for index, other in enumerate(ids) if other == token]


def _overlap(text: str, other: str) -> bool:
    """Say whether two texts can overlap where they stand: one inside the other, or an end that is a beginning."""
    if text != other and (text in other or other in text):
        return True
    sizes = range(1, min(len(text), len(other)))
    return any(text[:size] == other[-size:] or text[-size:] == other[:size] for size in sizes)
