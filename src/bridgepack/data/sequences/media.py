"""Finds what is seen or heard in the turns of a conversation: parts of content, and places for it in texts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.contents import media_in
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.records import LostKind

_WORDS = ("image", "video", "audio")
#: Texts in which a place is looked for.
_HINTS = tuple(f"<{word}>" for word in _WORDS)
#: A place for media, as LLaVA's and ms-swift's data hold it: first in a line, or an image at a line's end.
_PLACE = re.compile(r"(?m)^\s*<(image|video|audio)>|<(image)>\s*$")


def media_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[Loss]:
    """Yield the first of a conversation's turns that is not text alone."""
    for number, message in enumerate(messages, 1):
        content = message["content"]
        if type(content) is str:
            is_hinted = message["role"] != ASSISTANT and any(hint in content for hint in _HINTS)
            fault = _place_in(content) if is_hinted else ""
        else:
            fault = _part_in(content)
        if fault:
            yield Loss(LostKind.MEDIA, f"turn {number} ({message['role']}) {fault}")
            return


def _place_in(text: str) -> str:
    """Return what to say of a text that holds a place for media; empty for others, as those with elements of HTML."""
    match = _PLACE.search(text)
    word = "" if match is None else match[1] or match[2]
    return f"holds a place for media, '<{word}>'" if word and f"</{word}>" not in text else ""


def _part_in(content: Any) -> str:
    for part in content if isinstance(content, list) else ():
        if kind := media_in(part):
            return f"has a part of the type {kind!r}"
    return ""
