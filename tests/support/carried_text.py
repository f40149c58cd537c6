"""Where a template puts what a row says: its text carried through the template by private-use characters.

`Hi` of the second message -> two characters that no template knows, one for each letter. In the render they say which
message wrote each character, whatever the template does with white space or with the order of the turns. This shares
no code with what makes masks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.templates.facts import thought_fields_of
from bridgepack.data.templates.forms import forms_of
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import THOUGHT_MARKERS

Message = Mapping[str, Any]

#: First of the private-use characters, of which each message has as many as there are Latin ones.
_FIRST, _SIZE = 0xF0000, 256
#: What templates look for in a text, and white space, which they trim, stay.
_KEPT = re.compile("|".join(re.escape(text) for markers in THOUGHT_MARKERS for text in markers[:2]) + r"|\s|[\\\"/]")
#: Fields whose text says nothing by itself.
_UNCARRIED = frozenset({"role", "type", "id", "tool_call_id", "name"})


class Carried(NamedTuple):
    """A rendered conversation, and who wrote it."""

    text: str
    #: position in the text -> message that wrote this character
    writers: Mapping[int, int]
    #: tokens of the text, with their places
    encoding: Any


@lru_cache(maxsize=1)
def conversation_reader(tokenizer: ChatTokenizer) -> ConversationReader:
    """Return what reads the conversations that are carried, in the forms and fields that the template reads."""
    fields = thought_fields_of(tokenizer.chat_template or "")
    return ConversationReader(ChatPreprocessing(), forms_of(tokenizer), thought_fields=fields)


def carried(tokenizer: ChatTokenizer, messages: Sequence[Message], tools: Any = None) -> Carried | None:
    """Return the render with its writers; None if the template writes these words in another way than others."""
    given = [_carry(message, index) for index, message in enumerate(messages)]
    try:
        render = tokenizer.render_text(given, tools)
        whole = tokenizer.render_text([dict(message) for message in messages], tools)
    except RowError:
        return None
    letters, writers = [], {}
    for position, character in enumerate(render):
        place = ord(character) - _FIRST
        if 0 <= place < _SIZE * len(messages):
            writers[position] = place // _SIZE
            character = chr(place % _SIZE)
        letters.append(character)
    text = "".join(letters)
    return Carried(text, writers, *tokenizer.encode_with_places([text])) if text == whole else None


def _carry(value: Any, index: int, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _UNCARRIED else "".join(_carried_text(value, index))
    if isinstance(value, Mapping):
        return {key: _carry(item, index, key) for key, item in value.items()}
    return [_carry(item, index) for item in value] if isinstance(value, list) else value


def _carried_text(text: str, index: int) -> Iterator[str]:
    letters, place = _letters(index), 0
    for kept in _KEPT.finditer(text):
        yield text[place : kept.start()].translate(letters)
        yield kept.group()
        place = kept.end()
    yield text[place:].translate(letters)


@cache
def _letters(index: int) -> Mapping[int, str]:
    """Return letter -> the private-use character of a message for it."""
    return {letter: chr(_FIRST + index * _SIZE + letter) for letter in range(_SIZE)}


def faults(tokenizer: ChatTokenizer, chat: Carried, made: Encoded, trained: Sequence[int]) -> Iterator[str]:
    """Yield what is wrong with a mask: a trained character of another message, or an untrained one of `trained`.

    Also an answer of `trained` behind which nothing is trained, unless the row says so. Control tokens that are never
    trained may be untrained in an answer that is reported for them.
    """
    told = {loss.kind for loss in made.losses}
    assert list(chat.encoding.ids) == made.ids
    exempt_ids = frozenset(tokenizer.never_trained_ids if "injected_turn" in told else ())
    is_trained, is_exempt = [False] * len(chat.text), [False] * len(chat.text)
    for token, (start, stop), bit in zip(made.ids, chat.encoding.offsets, made.mask, strict=True):
        if bit:
            is_trained[start:stop] = [True] * (stop - start)
        if exempt_ids:
            is_exempt[start:stop] = [token in exempt_ids] * (stop - start)
    for place, message in chat.writers.items():
        if is_trained[place] == (message in trained) or (is_exempt[place] and not is_trained[place]):
            continue
        shown = repr(chat.text[max(0, place - 20) : place + 20])
        yield f"message {message + 1} is {'' if is_trained[place] else 'not '}trained: {shown}"
    first_places = {writer: place for place, writer in reversed(chat.writers.items())}
    last_places = {writer: place for place, writer in chat.writers.items()}
    for message in trained:
        last = last_places.get(message)
        following = min((place for writer, place in first_places.items() if writer > message), default=len(chat.text))
        if last is not None and "no_end" not in told and not any(is_trained[last + 1 : following]):
            yield f"message {message + 1} has no trained end: {chat.text[last - 20 : following]!r}"
