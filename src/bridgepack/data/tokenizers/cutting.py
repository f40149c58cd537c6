"""Added tokens that always split a text: the text before one is tokenised independently of it."""

import re
from bisect import bisect_left
from collections.abc import Collection, Container, Sequence

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

#: Characters of a longer added token, which no template needs, are not compared with the others.
_MOST_CHARACTERS = 256


class CuttingTokens:
    """The cutting tokens of one tokenizer and its chat template."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        """Take the chat template's added tokens that no other added token can overlap, so they always split."""
        texts, isolated_ids = [text for text in tokenizer.added_tokens if text], tokenizer.isolated_token_ids
        special = (text for text in tokenizer.special_tokens.values() if isinstance(text, str))
        source = (tokenizer.chat_template or "") + " ".join(special)
        sizes = {text: range(1, min(len(text), _MOST_CHARACTERS)) for text in texts}
        beginnings = {text[:size] for text in texts for size in sizes[text]}
        ends = {text[-size:] for text in texts for size in sizes[text]}
        self._by_start: dict[str, list[tuple[str, int]]] = {}
        for text in texts:
            index, is_short = tokenizer.added_tokens[text], len(text) <= _MOST_CHARACTERS
            if (
                is_short
                and index in isolated_ids
                and text in source
                and not _can_overlap(text, texts, beginnings, ends)
            ):
                self._by_start.setdefault(text[0], []).append((text, index))

    @property
    def ids(self) -> dict[str, int]:
        """Text -> id of each token."""
        return {text: index for tokens in self._by_start.values() for text, index in tokens}

    def at(self, text: str, position: int) -> tuple[str, int] | None:
        """Return (text, id) of the token at a character, or None."""
        for token, index in self._by_start.get(text[position : position + 1], ()):
            if text.startswith(token, position):
                return token, index
        return None

    def token_at(self, text: str, input_ids: Sequence[int], position: int) -> int | None:
        """Return the index of the token at a character of a text with these ids if it always splits it, else None."""
        if position == len(text):
            return len(input_ids)
        cut = self.at(text, position)
        if cut is None:
            return None
        token, index = cut
        characters = [match.start() for match in re.finditer(re.escape(token), text)]
        tokens = [place for place, token_id in enumerate(input_ids) if token_id == index]
        return tokens[bisect_left(characters, position)] if len(characters) == len(tokens) else None


def _can_overlap(text: str, texts: Collection[str], beginnings: Container[str], ends: Container[str]) -> bool:
    """Return whether a text can overlap an added token: one contains the other, or an end of one begins the other.

    Shorter beginnings and ends of the added tokens, a thousand in some vocabularies, are given as sets.
    """
    if any(text != item and (text in item or item in text) for item in texts):
        return True
    return any(text[:size] in ends or text[size:] in beginnings for size in range(1, len(text)))
