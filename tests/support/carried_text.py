"""Where a template puts what a row says: its text carried through the template by private-use characters.

`Hi` of the second message -> two characters that no template knows, one for each letter. In the render they say which
message wrote each character, whatever the template does with white space or with the order of the turns. This shares
no code with what makes masks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.mending import thought_fields_of
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


def conversation_reader(tokenizer: ChatTokenizer) -> ConversationReader:
    """Return what reads the conversations that are carried, in the forms and fields that the template reads."""
    fields = thought_fields_of(tokenizer.chat_template or "")
    return ConversationReader(ChatPreprocessing(), tokenizer.forms, thought_fields=fields)


def carried(tokenizer: ChatTokenizer, messages: Sequence[Message], tools: Any = None) -> Carried | None:
    """Return the render with its writers; None if the template writes these words in another way than others."""
    given = [_carry(message, index) for index, message in enumerate(messages)]
    try:
        render = tokenizer.render_text(given, tools)
        whole = tokenizer.render_text([dict(message) for message in messages], tools)
    except RowError:
        return None
    text, writers = "", {}
    for character in render:
        place = ord(character) - _FIRST
        if 0 <= place < _SIZE * len(messages):
            writers[len(text)] = place // _SIZE
            character = chr(place % _SIZE)
        text += character
    return Carried(text, writers) if text == whole else None


def _carry(value: Any, index: int, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _UNCARRIED else "".join(_carried_text(value, index))
    if isinstance(value, Mapping):
        return {key: _carry(item, index, key) for key, item in value.items()}
    return [_carry(item, index) for item in value] if isinstance(value, list) else value


def _carried_text(text: str, index: int) -> Iterator[str]:
    place = 0
    while place < len(text):
        if kept := _KEPT.match(text, place):
            yield kept.group()
            place = kept.end()
        else:
            letter = ord(text[place])
            yield chr(_FIRST + index * _SIZE + letter) if letter < _SIZE else text[place]
            place += 1


def faults(tokenizer: ChatTokenizer, chat: Carried, made: Encoded, trained: Sequence[int]) -> Iterator[str]:
    """Yield what is wrong with a mask: a trained character of another message, or an untrained one of `trained`.

    Also an answer of `trained` behind which nothing is trained, unless the row says so. Control tokens that are never
    trained may be untrained in an answer that is reported for them.
    """
    told = {loss.kind for loss in made.losses}
    (encoding,) = tokenizer.encode_with_places([chat.text])
    assert list(encoding.ids) == made.ids
    is_trained, is_exempt = [False] * len(chat.text), [False] * len(chat.text)
    for token, (start, stop), bit in zip(made.ids, encoding.offsets, made.mask, strict=True):
        for place in range(start, stop):
            is_trained[place] = is_trained[place] or bool(bit)
            is_exempt[place] = token in tokenizer.never_trained_ids and "injected_turn" in told
    for place, message in chat.writers.items():
        shown = repr(chat.text[max(0, place - 20) : place + 20])
        if is_trained[place] and message not in trained:
            yield f"message {message + 1} is trained: {shown}"
        elif not is_trained[place] and not is_exempt[place] and message in trained:
            yield f"message {message + 1} is not trained: {shown}"
    for message in trained:
        last = max((place for place, writer in chat.writers.items() if writer == message), default=None)
        following = min((place for place, writer in chat.writers.items() if writer > message), default=len(chat.text))
        if last is not None and "no_end" not in told and not any(is_trained[last + 1 : following]):
            yield f"message {message + 1} has no trained end: {chat.text[last - 20 : following]!r}"
