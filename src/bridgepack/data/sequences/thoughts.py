"""Thoughts in trained turns: where they are in a text and its tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from bridgepack.data.tokenizers.places import TokenPlaces, require_places
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import THOUGHT_MARKERS, TokenArray

#: (start, stop) in tokens.
Span = tuple[int, int]


class Thoughts(NamedTuple):
    """Character positions of thoughts in a turn, from their opening marker."""

    first: int
    stop: int  #: tokens before it are not trained: start of the closing marker, or its end if the block is empty
    blanks: int  #: end of the line ends after an empty block, which are not trained either; indentation is the answer's


class ReasoningMasks:
    """Finds the thoughts that are not trained."""

    def __init__(
        self, tokenizer: ChatTokenizer, mode: Literal["mask", "mask_empty"], *, keeps_empty: bool = False
    ) -> None:
        """Take the wanted mode: no loss on any thoughts, or only on empty blocks.

        `keeps_empty`: the masks have no generation prompt, so the model must write the empty blocks that they have.

        Raises:
            TokenizerError: the tokenizer does not report tokens' character positions.
        """
        require_places(tokenizer, f"reasoning_loss is {mode!r}", "Set preprocessing.reasoning_loss to keep")
        self._tokenizer, self._only_empty, self._keeps_empty = tokenizer, mode == "mask_empty", keeps_empty

    def tokens(
        self, answers: Sequence[Span], text: str, are_of_one_turn: Callable[[Span], bool] = lambda _: False
    ) -> list[Span]:
        """Return the thoughts in answers of a conversation's text; both are (start, stop) in its tokens.

        A thought that an answer leaves open goes on in the next if `are_of_one_turn`, of the characters of both: a
        template may write a turn in several generation blocks.

        Raises:
            RowError: a token holds an end of thoughts and what is beside it.
        """
        if not answers or not has_thoughts(text):
            return []
        places, thoughts = TokenPlaces.of(self._tokenizer, text), []
        parts: list[Span] = []
        for first, stop in answers:
            begin = int(places.starts[parts[-1][0]]) if parts else 0
            after = int(places.stops[stop - 1])
            is_open = bool(parts) and _ends_in_thoughts(text[begin : int(places.stops[parts[-1][1] - 1])])
            if is_open and are_of_one_turn((begin, after)):
                parts[-1] = parts[-1][0], stop
            else:
                parts.append((first, stop))
        for first, stop in parts:
            begin = int(places.starts[first])
            for item in thoughts_in(text[begin : int(places.stops[stop - 1])]):
                if not self._keeps_empty if item.blanks else not self._only_empty:
                    first_place, after = (begin + place for place in (item.first, max(item.stop, item.blanks)))
                    thoughts.append((max(first, places.token_from(first_place)), min(stop, places.token_from(after))))
        return thoughts


def openings_of(sequences: Sequence[Sequence[int]], answers: Sequence[Span], input_ids: TokenArray) -> Iterator[Span]:
    """Yield the openings of answers, (start, stop) in the conversation's tokens, shape [num_tokens].

    `sequences` as of `TemplateFacts.trimmed_openings`; they are left out as often as they follow each other.
    """
    for first, stop in answers if sequences else ():
        ids, place = tuple(input_ids[first:stop].tolist()), 0
        while opening := next((item for item in sequences if ids[place : place + len(item)] == item), ()):
            place += len(opening)
        yield first, first + place


def has_thoughts(text: str) -> bool:
    """Return whether a rendered conversation has a marker of thoughts."""
    return any(opening in text or (is_own and closing in text) for opening, closing, is_own in THOUGHT_MARKERS)


def _ends_in_thoughts(turn: str) -> bool:
    """Return whether the last marker of thoughts in a text opens them."""
    return any(turn.rfind(opening) > turn.rfind(closing) for opening, closing, _ in THOUGHT_MARKERS)


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
    """Return a block; an empty one, which prompts write, includes its closing marker and the line ends after it."""
    if turn[inner:stop].strip():
        return Thoughts(first, stop, 0)
    end = stop + len(closing)
    return Thoughts(first, end, len(turn) - len(turn[end:].lstrip("\n")))
