"""Finds the assistant's thoughts in a rendered conversation, and removes them from masks."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError
from bridgepack.geometry import IntArray
from bridgepack.records import THOUGHT_MARKERS, MaskArray


class Thoughts(NamedTuple):
    """Character positions of thoughts in a turn, from their opening marker."""

    first: int
    stop: int  #: tokens before it are not trained: start of the closing marker, or its end if the block is empty
    blanks: int  #: end of the white space after an empty block; its tokens are not trained either


class ReasoningMasks:
    """Removes thoughts from loss masks."""

    def __init__(self, tokenizer: ChatTokenizer, wanted: Literal["mask", "mask_empty"]) -> None:
        """Take the wanted mode: no loss on any thoughts, or only on empty blocks.

        Raises:
            TokenizerError: the tokenizer does not report tokens' character positions.
        """
        if tokenizer.backend is None:
            raise TokenizerError(
                f"preprocessing.reasoning_loss is {wanted!r} and tokenizer.name_or_path is "
                f"{tokenizer.config.name_or_path!r}, a tokenizer written in Python, which does not report "
                "tokens' positions. Set preprocessing.reasoning_loss to keep, or use a tokenizer with a tokenizer.json."
            )
        self._tokenizer, self._only_empty = tokenizer, wanted == "mask_empty"

    def take_off(self, mask: MaskArray, text: str) -> None:
        """Set one conversation's mask, shape [num_tokens], token-aligned, to 0 at thoughts, in place."""
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
        """Return (start, stop) of each token in characters; `offsets` may omit white space."""
        bounds = np.array(offsets, dtype=np.int64).reshape(-1, 2)
        if self._tokenizer.keeps_bytes:
            bounds[1:, 0] = np.minimum(bounds[1:, 0], np.maximum.accumulate(bounds[:-1, 1]))
        return bounds


def has_thoughts(text: str) -> bool:
    """Return whether a rendered conversation has a marker of thoughts."""
    return any(opening in text or (is_own and closing in text) for opening, closing, is_own in THOUGHT_MARKERS)


def thoughts_in(turn: str) -> Iterator[Thoughts]:
    """Yield the thoughts in an assistant turn.

    Thoughts are the text between two markers, anywhere in the turn. A closing marker before any opening one ends
    thoughts that the prompt began. An opening marker that is never closed makes the rest of the turn thoughts, if
    only thoughts precede it, such as the empty block that a template writes.
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
    """Return a block; an empty one, which prompts write, includes its closing marker and the white space after it."""
    if turn[inner:stop].strip():
        return Thoughts(first, stop, 0)
    end = stop + len(closing)
    return Thoughts(first, end, len(turn) - len(turn[end:].lstrip()))
