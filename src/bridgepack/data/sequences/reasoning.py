"""Where the thoughts of the assistant's turns stand in a rendered conversation, and masks without them."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.records import THOUGHT_MARKERS, MaskArray


class Thoughts(NamedTuple):
    """Characters of thoughts in a turn, from their opening marker on."""

    first: int
    stop: int  #: tokens that begin before are not trained: where the closing marker begins, or ends where it is empty
    blanks: int  #: where white space after an empty block ends; tokens of it are not trained either


class ReasoningMasks:
    """Takes the loss off thoughts."""

    def __init__(self, tokenizer: ChatTokenizer, wanted: Literal["mask", "mask_empty"]) -> None:
        """Take what is wanted: no loss on thoughts, or on empty blocks of them alone.

        Raises:
            TokenizerError: the tokenizer does not say which characters a token is of.
        """
        if tokenizer.backend is None:
            raise TokenizerError(
                f"preprocessing.reasoning_loss is {wanted!r} and tokenizer.name_or_path is "
                f"{tokenizer.config.name_or_path!r}, a tokenizer written in Python, which does not say which "
                "characters a token is of. Set preprocessing.reasoning_loss to keep, or use one with a tokenizer.json."
            )
        self._tokenizer, self._only_empty = tokenizer, wanted == "mask_empty"

    def take_off(self, mask: MaskArray, text: str) -> None:
        """Set the mask of one conversation, shape [num_tokens], token-aligned, to 0 at thoughts in what it trains."""
        if not has_thoughts(text):
            return
        (encoding,) = self._tokenizer.encode_with_places([text])
        bounds = self._bounds(encoding.offsets)
        starts, stops = bounds[:, 0], bounds[:, 1]
        assert len(bounds) == len(mask)
        for first, last in np.flatnonzero(np.diff([0, *mask.tolist(), 0])).reshape(-1, 2).tolist():
            begin = int(starts[first])
            for item in self._wanted(text[begin : int(stops[last - 1])]):
                is_thought = (starts < begin + item.stop) & (stops > begin + item.first)
                is_blank = (starts >= begin + item.stop) & (stops <= begin + item.blanks)
                mask[first:last][(is_thought | is_blank)[first:last]] = 0

    def _wanted(self, turn: str) -> Iterator[Thoughts]:
        return (item for item in thoughts_in(turn) if item.blanks or not self._only_empty)

    def _bounds(self, offsets: Sequence[tuple[int, int]]) -> IntArray:
        """Return each token's first and one past its last character; white space may be left out of `offsets`."""
        bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
        if self._tokenizer.keeps_bytes:
            bounds[1:, 0] = np.minimum(bounds[1:, 0], np.maximum.accumulate(bounds[:-1, 1]))
        return bounds


def has_thoughts(text: str) -> bool:
    """Say whether a rendered conversation has a marker of thoughts."""
    return any(opening in text or (is_own and closing in text) for opening, closing, is_own in THOUGHT_MARKERS)


def thoughts_in(turn: str) -> Iterator[Thoughts]:
    """Yield the thoughts of an assistant's turn.

    Thoughts are what stands between two markers, wherever in the turn. A closing marker before any opening one ends
    thoughts that the prompt began; an opening one that is never closed makes the rest of the turn thoughts where only
    thoughts stand before it, such as the empty block that a template writes.
    """
    for opening, closing, is_own in THOUGHT_MARKERS:
        first, stop, end = turn.find(opening), turn.find(closing), 0
        if is_own and stop >= 0 and not 0 <= first < stop:
            yield _block(turn, 0, 0, stop, closing)
            end = stop + len(closing)
            first = turn.find(opening, end)
        while first >= 0:
            inner = first + len(opening)
            stop = turn.find(closing, inner)
            if stop < 0:
                if not turn[end:first].strip():
                    yield Thoughts(first, len(turn), 0)
                break
            yield _block(turn, first, inner, stop, closing)
            end = stop + len(closing)
            first = turn.find(opening, end)


def _block(turn: str, first: int, inner: int, stop: int, closing: str) -> Thoughts:
    """Return a block; the closing marker and the white space behind it go with an empty one, which prompts write."""
    if turn[inner:stop].strip():
        return Thoughts(first, stop, 0)
    end = stop + len(closing)
    return Thoughts(first, end, len(turn) - len(turn[end:].lstrip()))
