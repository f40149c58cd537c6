"""A conversation with marks around what its turns say, and where a render has them.

A mark is a word of two letters that no text has. Without its marks, the render must be the plain one, byte for byte:
then the places of the marks are those of the texts, however the template writes and moves them. Marks stand inside the
white space around a text, because templates strip it; a text without letters has none, because templates ask whether
there is one.

The letters are Tangut's: they have no case and print as they are, also as Python and JSON write them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from bridgepack.config.layouts.keys import CALL_RESULTS, REASONING, TURN_RESULTS
from bridgepack.records import ASSISTANT

_TANGUT = "\U00017000-\U000187f7"
_LETTERS = "".join(map(chr, range(0x17000, 0x187F8)))
_LETTER = re.compile(f"[{_TANGUT}]")
#: Letters that are left for marks where texts have others; fewer are too few words.
_LEAST_LETTERS = 256

Messages = Sequence[Mapping[str, Any]]
Range = tuple[int, int]


class Content(StrEnum):
    """What a text of a turn is."""

    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"
    CONTEXT = "context"  #: not the assistant's


class Calls(StrEnum):
    """What of calls has marks."""

    DEEP = "deep"  #: names, and keys and texts of arguments
    NAMES = "names"  #: names alone: templates may look up arguments or escape them


class Text(NamedTuple):
    """A text of a turn, and its pieces that have marks."""

    message: int
    content: Content
    text: str
    pieces: tuple[Range, ...]  #: (start, stop) in the text, ascending
    first_piece: int  #: number of its first piece


class Spot(NamedTuple):
    """A place in the render where a piece stands, in characters of the plain render."""

    start: int
    stop: int
    text: int  #: position of its `Text`
    piece: int  #: its number within that text


@dataclass(kw_only=True, slots=True)
class Marking:
    """Puts marks into one conversation."""

    cuts: re.Pattern[str]  #: where a template may cut a text
    calls: Calls
    letters: str = _LETTERS
    texts: list[Text] = field(default_factory=list)
    #: texts of turns that have no marks
    bare: list[str] = field(default_factory=list)
    _num_pieces: int = 0

    def messages(self, messages: Messages) -> list[dict[str, Any]]:
        """Return messages with marks."""
        return [self._message(message, index) for index, message in enumerate(messages)]

    def context(self, value: Any, message: int, is_wanted: Callable[[str], object] = bool) -> Any:
        """Return tools, variables or results with marks around some of their texts, as those of a message."""
        if isinstance(value, str):
            return self._put(value, message, Content.CONTEXT) if is_wanted(value) else value
        if isinstance(value, list):
            return [self.context(item, message, is_wanted) for item in value]
        if isinstance(value, Mapping):
            self.bare += [key for key in value if isinstance(key, str)]
            return {key: self.context(item, message, is_wanted) for key, item in value.items()}
        return value

    def spots(self, render: str) -> tuple[str, list[Spot]] | None:
        """Return a render without marks, and the places of the pieces in it; None if one has not both marks."""
        parts: list[str] = []
        spots: list[Spot] = []
        starts: dict[int, int] = {}
        place = size = 0
        words, place_of = _words_of(self.letters)
        texts = [index for index, text in enumerate(self.texts) for _ in text.pieces]
        for word in words.finditer(render):
            first, second = (place_of[letter] for letter in word.group())
            piece, is_stop = divmod(first * len(self.letters) + second, 2)
            parts.append(render[place : word.start()])
            size, place = size + len(parts[-1]), word.end()
            if not is_stop:
                if piece in starts:
                    return None
                starts[piece] = size
                continue
            start = starts.pop(piece, None)
            if start is None or piece >= len(texts):
                return None
            spots.append(Spot(start, size, texts[piece], piece - self.texts[texts[piece]].first_piece))
        parts.append(render[place:])
        return None if starts else ("".join(parts), sorted(spots))

    def _message(self, message: Mapping[str, Any], index: int) -> dict[str, Any]:
        is_answer = message["role"] == ASSISTANT
        copy = dict(message)
        for name, value in message.items():
            if name == "content":
                copy[name] = self._content(value, index, Content.TEXT if is_answer else Content.CONTEXT)
            elif name in REASONING and isinstance(value, str):
                copy[name] = self._put(value, index, Content.THOUGHT if is_answer else Content.CONTEXT)
            elif name == "tool_calls" and isinstance(value, list):
                copy[name] = [self._call(call, index) for call in value]
            elif is_answer and name in TURN_RESULTS:
                copy[name] = self.context(value, index)
            elif name != "role":
                self.bare += texts_within(value)
        return copy

    def _content(self, content: Any, index: int, kind: Content) -> Any:
        if isinstance(content, str):
            return self._put(content, index, kind)
        if isinstance(content, list):
            return [self._part(part, index, kind) for part in content]
        return content

    def _part(self, part: Any, index: int, kind: Content) -> Any:
        if isinstance(part, str):
            return self._put(part, index, kind)
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            self.bare += texts_within({name: value for name, value in part.items() if name != "text"})
            return {**part, "text": self._put(part["text"], index, kind)}
        self.bare += texts_within(part)
        return part

    def _call(self, call: Any, index: int) -> Any:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            self.bare += texts_within(call)
            return call
        arguments = function.get("arguments")
        copy = {**function, "name": self._put(function["name"], index, Content.CALL)}
        if self.calls is Calls.DEEP and "arguments" in function:
            copy["arguments"] = self._arguments(arguments, index)
        else:
            self.bare += texts_within(arguments)
        copy |= self._results(function, index)
        return copy if function is call else {**call, **self._results(call, index), "function": copy}

    def _results(self, call: Mapping[str, Any], index: int) -> dict[str, Any]:
        return {name: self.context(value, index) for name, value in call.items() if name in CALL_RESULTS}

    def _arguments(self, value: Any, index: int) -> Any:
        if isinstance(value, str):
            return self._put(value, index, Content.CALL)
        if isinstance(value, list):
            return [self._arguments(item, index) for item in value]
        if isinstance(value, Mapping):
            keys = (self._put(key, index, Content.CALL) if isinstance(key, str) else key for key in value)
            return {key: self._arguments(item, index) for key, item in zip(list(keys), value.values(), strict=True)}
        return value

    def _put(self, text: str, message: int, kind: Content) -> str:
        """Return a text with marks around its pieces."""
        pieces = tuple(pieces_of(text, self.cuts))
        self.texts.append(Text(message, kind, text, pieces, self._num_pieces))
        self.bare += [] if pieces else [text]
        parts, place = [], 0
        for start, stop in pieces:
            number = 2 * self._num_pieces
            parts += [text[place:start], self._word(number), text[start:stop], self._word(number + 1)]
            place = stop
            self._num_pieces += 1
        return "".join([*parts, text[place:]])

    def _word(self, number: int) -> str:
        first, second = divmod(number, len(self.letters))
        return self.letters[first] + self.letters[second]


@lru_cache(maxsize=8)
def _words_of(letters: str) -> tuple[re.Pattern[str], Mapping[str, int]]:
    """Return what finds words of two of these letters, and letter -> place among them."""
    letters_of_texts = "".join(sorted({*_LETTERS} - {*letters}))
    # as a range: an expression that lists thousands of letters compares each character with each of them
    letter = f"(?![{letters_of_texts}])[{_TANGUT}]" if letters_of_texts else f"[{_TANGUT}]"
    return re.compile(f"(?:{letter}){{2}}"), {letter: place for place, letter in enumerate(letters)}


def free_letters(texts: Sequence[str]) -> str:
    """Return the letters for marks that texts have not; none if these are too few."""
    if all(text.isascii() for text in texts) or not any(map(_LETTER.search, texts)):
        return _LETTERS
    letters_of_texts = set(_LETTER.findall("".join(texts)))
    letters = "".join(letter for letter in _LETTERS if letter not in letters_of_texts)
    return letters if len(letters) >= _LEAST_LETTERS else ""


def pieces_of(text: str, cuts: re.Pattern[str]) -> Iterator[Range]:
    """Yield (start, stop) of a text's pieces between cuts, each inside the white space around it.

    Example: ` <think>Hm. </think>Yes` cut at the markers of thoughts -> (8, 11), (20, 23).
    """
    place = 0
    for stop, after in [*(cut.span() for cut in cuts.finditer(text)), (len(text), len(text))]:
        piece = text[place:stop]
        start, inner = place + len(piece) - len(piece.lstrip()), place + len(piece.rstrip())
        if start < inner:
            yield start, inner
        place = after


def texts_within(value: Any) -> list[str]:
    """Return every text in a value, however deep."""
    texts, stack = [], [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            stack += item
    return texts
