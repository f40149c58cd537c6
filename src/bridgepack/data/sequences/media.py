"""Finds what is seen or heard in the turns of a conversation: parts of content, and places for it in texts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.contents import media_in
from bridgepack.data.sequences.encoding import Loss
from bridgepack.records import ASSISTANT, LostKind

#: A place for media, as LLaVA's and ms-swift's data hold it: first in a line, or an image at a line's end.
_PLACE = re.compile(r"(?m)^\s*<(image|video|audio)>|<(image)>\s*$")
#: Texts that are a place wherever they stand: Phi's, Qwen's, MMMU's, XComposer's, Pixtral's; a path; Markdown's.
_PLACES = re.compile(
    r"<\|(?:image|video|audio|vision)\w*\|>|<image[ _]?\d+>|<ImageHere>|^\[IMG\]|\[IMG\]$"
    r"|<(?P<word>img|image|audio|video)>[^<>\n]+</(?P=word)>|!\[[^\]]*\]\(data:image/"
)


def has_hint(text: str) -> bool:
    """Return whether a text may hold a place for media."""
    return "<" in text or "[IMG]" in text or "](data:image/" in text


def media_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[Loss]:
    """Yield the first of a conversation's turns that is not text alone."""
    for number, message in enumerate(messages, 1):
        content = message["content"]
        if type(content) is str:
            is_hinted = message["role"] != ASSISTANT and has_hint(content)
            fault = _place_in(content) if is_hinted else ""
        else:
            fault = _part_in(content)
        if fault:
            yield Loss(LostKind.MEDIA, f"turn {number} ({message['role']}) {fault}")
            return


def _place_in(text: str) -> str:
    """Return what to say of a text that holds a place for media; empty for others, as those with elements of HTML."""
    if place := _PLACES.search(text):
        return f"holds a place for media, {place[0]!r}"
    match = _PLACE.search(text)
    word = "" if match is None else match[1] or match[2]
    return f"holds a place for media, '<{word}>'" if word and f"</{word}>" not in text else ""


def _part_in(content: Any) -> str:
    for part in content if isinstance(content, list) else ():
        if kind := media_in(part):
            return f"has a part of the type {kind!r}"
    return ""
