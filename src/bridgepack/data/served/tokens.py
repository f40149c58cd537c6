"""Tokens of texts that begin as another text whose tokens are known; only what differs is encoded."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import TokenArray

#: Characters after a difference that are encoded to show it, and tokens to show on each side of it.
_WINDOW, _MARGIN = 256, 12


class Difference(NamedTuple):
    """The first token in which two texts differ."""

    token: int  #: index of the token; the number of tokens if one text goes on where the other ends
    trained: str  #: text around it in the training text
    served: str  #: text around it in the other


class KnownText:
    """A training text and its tokens.

    A text before an added token that always splits texts is encoded independently of what follows, so a text that
    begins as this one up to such a token has the same tokens up to there.
    """

    def __init__(self, tokenizer: ChatTokenizer, cutting: CuttingTokens, text: str, input_ids: TokenArray) -> None:
        """Take a text with its tokens, shape [num_tokens], int32."""
        self.text, self.input_ids = text, input_ids
        self._tokenizer, self._cutting = tokenizer, cutting

    def tokens_of(self, other_text: str) -> TokenArray:
        """Return the tokens of a text, shape [num_tokens], int32."""
        place, token = self._cut_before(common_prefix(self.text, other_text))
        return np.concatenate([self.input_ids[:token], self._encode(other_text[place:])])

    def difference(self, other_text: str) -> Difference:
        """Return the first token in which a text differs from this one; the texts differ, or their tokens do."""
        num_shared = common_prefix(self.text, other_text)
        place, token = self._cut_before(num_shared)
        other_ids = self._encode(other_text[place : num_shared + _WINDOW])
        own_ids = self.input_ids[token:]
        at = first_unequal(own_ids, other_ids)
        before = self.input_ids[max(token + at - _MARGIN, 0) : token].tolist()
        texts = (self._tokenizer.decode([*before, *_around(ids, at)]) for ids in (own_ids, other_ids))
        return Difference(token + at, *texts)

    def shown_at(self, token: int) -> str:
        """Return the text around a token."""
        return self._tokenizer.decode(_around(self.input_ids, token))

    def _encode(self, text: str) -> TokenArray:
        return np.array(self._tokenizer.encode_with_places([text])[0].ids, dtype=np.int32)

    def _cut_before(self, num_shared: int) -> tuple[int, int]:
        """Return (character, token) of the last splitting token that lies within the first `num_shared` characters."""
        stops, places, tokens = self._cuts
        index = bisect_right(stops, num_shared) - 1
        return (places[index], tokens[index]) if index >= 0 else (0, 0)

    @cached_property
    def _cuts(self) -> tuple[list[int], list[int], list[int]]:
        """Ends and beginnings in characters, and indices, of the splitting tokens; empty if they are not all known."""
        ids = self._cutting.ids
        if not ids:
            return [], [], []
        matches = list(re.finditer("|".join(map(re.escape, ids)), self.text))
        tokens = np.flatnonzero(np.isin(self.input_ids, list(ids.values())))
        if [ids[match.group()] for match in matches] != self.input_ids[tokens].tolist():
            return [], [], []
        return [match.end() for match in matches], [match.start() for match in matches], tokens.tolist()


def _around(ids: TokenArray, at: int) -> list[int]:
    around: list[int] = ids[max(at - _MARGIN, 0) : at + _MARGIN].tolist()
    return around


def first_unequal(first: TokenArray | Sequence[int], second: TokenArray | Sequence[int]) -> int:
    """Return how many leading tokens two arrays share: [5, 6], [5, 7, 8] -> 1."""
    size = min(len(first), len(second))
    unequal = np.asarray(first[:size]) != np.asarray(second[:size])
    return int(unequal.argmax()) if unequal.any() else size
