"""Derives which of the assistant's characters are untrained thoughts, and changes the votes on them.

Reads markers in order; also searches for thoughts that a row has in a separate field, whatever the template writes
around them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bridgepack.data.sequences.marked_text import REASONING
from bridgepack.proof.masks.votes import NOT_JUDGED, TRAINED, Derivation, Span, untrained
from bridgepack.records import THOUGHT_MARKERS


def without_thoughts(
    derivation: Derivation, text: str, answers: Sequence[Mapping[str, Any]], *, only_empty: bool
) -> Derivation:
    """Return the derivation with votes against training thoughts in the turns that it knows.

    If the text has thoughts, a turn whose position is unknown is not judged.

    Args:
        derivation: derivation of the text.
        text: text of the conversation.
        answers: the assistant's messages, in order.
        only_empty: only empty blocks are untrained.
    """
    spans = thoughts_of(derivation.turns, text, answers, only_empty=only_empty)
    if (not derivation.turns or None in derivation.turns) and any(marks[0] in text for marks in THOUGHT_MARKERS):
        is_unknown = derivation.votes == TRAINED
        for turn in derivation.turns:
            is_unknown[slice(*turn or (0, 0))] = False
        derivation = replace(derivation, votes=np.where(is_unknown, np.int8(NOT_JUDGED), derivation.votes))
    return untrained(derivation, spans)


def thoughts_of(
    turns: Sequence[Span | None], text: str, answers: Sequence[Mapping[str, Any]], *, only_empty: bool
) -> list[Span]:
    """Return the character spans of thoughts in turns, with their opening markers."""
    found: list[Span] = []
    for span, message in zip(turns, answers, strict=False):
        if span is not None:
            turn = text[slice(*span)]
            parts = [*_marked(turn, only_empty=only_empty), *([] if only_empty else _given(turn, message))]
            found += [(span[0] + first, span[0] + stop) for first, stop in parts]
    return found


def _marked(turn: str, *, only_empty: bool) -> Iterator[Span]:
    for opening, closing, is_own in THOUGHT_MARKERS:
        place, since, inner, end = 0, 0 if is_own else None, 0, 0
        for part in re.split(f"({re.escape(opening)}|{re.escape(closing)})", turn):
            place += len(part)
            if part == opening and (since is None or inner == 0):
                since, inner = place - len(part), place
            elif part == closing and since is not None:
                is_empty = not turn[inner : place - len(part)].strip()
                if is_empty:
                    yield since, len(turn) - len(turn[place:].lstrip())
                elif not only_empty:
                    yield since, place - len(part)
                since, inner, end = None, place, place
        if inner and since is not None and not turn[end:since].strip() and not only_empty:
            yield since, len(turn)


def _given(turn: str, message: Mapping[str, Any]) -> Iterator[Span]:
    """Yield the spans of a field's thoughts before the answer's own words."""
    words = message.get("content")
    limit = turn.rfind(words.strip()) if isinstance(words, str) and words.strip() else len(turn)
    for name in REASONING:
        thoughts = message.get(name)
        if isinstance(thoughts, str) and thoughts.strip():
            place = turn.find(thoughts.strip(), 0, max(limit, 0))
            if place >= 0:
                yield place, place + len(thoughts.strip())
