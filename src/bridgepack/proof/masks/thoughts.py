"""Finds thoughts and tool calls in a rendered text: untrained spans, and parts of calls that it lacks.

Reads markers in order; also searches for thoughts that a row has in a separate field, whatever the template writes
around them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.proof.masks.records import RowFinding
from bridgepack.proof.masks.rows.conversation import REASONING
from bridgepack.proof.masks.votes import NOT_JUDGED, TRAINED, Derivation, Span, exclude_spans
from bridgepack.records import THOUGHT_MARKERS

_THINK = ("<think>", "</think>")
_LOST_SHOWN = 3
_CORRECT_CALLS = (
    "Give the calls in the form that the template takes, or set tokenizer.chat_template to one that writes them."
)
_OPENED, _FAR = re.compile(r"(?:<think>(?:</think>|\n)?)+$"), 60


def without_thoughts(
    derivation: Derivation,
    text: str,
    answers: Sequence[Mapping[str, Any]],
    *,
    only_empty: bool,
    keeps_empty: bool = False,
) -> Derivation:
    """Return the derivation with votes against training thoughts in the turns that it knows.

    If the text has thoughts, a turn whose position is unknown is not judged. `answers` are the assistant's messages, in
    order; with `only_empty`, only empty blocks are untrained, with `keeps_empty` only others.
    """
    spans = thoughts_of(derivation.turns, text, answers, only_empty=only_empty, keeps_empty=keeps_empty)
    if (not derivation.turns or None in derivation.turns) and any(marks[0] in text for marks in THOUGHT_MARKERS):
        is_unknown = derivation.votes == TRAINED
        for turn in derivation.turns:
            is_unknown[slice(*turn or (0, 0))] = False
        derivation = replace(derivation, votes=np.where(is_unknown, np.int8(NOT_JUDGED), derivation.votes))
    return exclude_spans(derivation, spans)


def thoughts_of(
    turns: Sequence[Span | None],
    text: str,
    answers: Sequence[Mapping[str, Any]],
    *,
    only_empty: bool,
    keeps_empty: bool = False,
) -> list[Span]:
    """Return the character spans of thoughts in turns, with their opening markers."""
    spans: list[Span] = []
    for span, message in zip(turns, answers, strict=False):
        if span is not None:
            turn = text[slice(*span)]
            marked_spans = _marked_spans(turn, only_empty=only_empty, keeps_empty=keeps_empty)
            parts = [*marked_spans, *([] if only_empty else _given_spans(turn, message))]
            spans += [(span[0] + first, span[0] + stop) for first, stop in parts]
    return spans


def has_trimmed_openings(template: str) -> bool:
    """Return whether Megatron-Bridge 0.7 leaves out where answers begin with a thought, of a known family's template.

    Not of GLM's, which is the family without an end of turns, nor where generation blocks say what is trained.
    """
    is_glm = "<|assistant|>" in template and "clear_thinking" in template
    is_marked = re.search(r"\{%-?\s*generation\b", template) is not None
    return not is_glm and not is_marked and all(text in template for text in ("truncate_history_thinking", *_THINK))


def opening_of(turn: Span, text: str, bounds: IntArray) -> Span:
    """Return the characters of a turn's beginning that 0.7 leaves out; none of what shares a token with what follows.

    `<think></think>` and `<think>` with a line end, as often as they follow each other; `bounds` are the characters of
    each token, shape [num_tokens, 2]. A mark that every turn begins with, as learnt, may hold a part of it.
    """
    tag = _OPENED.search(text, max(turn[0] - _FAR, 0), turn[0])
    first = turn[0] if tag is None else tag.start()
    place, ends = first, set(bounds[:, 1].tolist())
    while match := re.match(r"<think>(?:</think>|\n)", text[place : turn[1]]):
        if place + match.end() not in ends:
            break
        place += match.end()
    return first, place


def _marked_spans(turn: str, *, only_empty: bool, keeps_empty: bool) -> Iterator[Span]:
    for opening, closing, is_own in THOUGHT_MARKERS:
        place, since, inner, end = 0, 0 if is_own else None, 0, 0
        for part in re.split(f"({re.escape(opening)}|{re.escape(closing)})", turn):
            place += len(part)
            if part == opening and (since is None or inner == 0):
                since, inner = place - len(part), place
            elif part == closing and since is not None:
                is_empty = not turn[inner : place - len(part)].strip()
                if is_empty and not keeps_empty:
                    yield since, len(turn) - len(turn[place:].lstrip("\n"))
                elif not is_empty and not only_empty:
                    yield since, place - len(part)
                since, inner, end = None, place, place
        if inner and since is not None and not turn[end:since].strip() and not only_empty:
            yield since, len(turn)


def _given_spans(turn: str, message: Mapping[str, Any]) -> Iterator[Span]:
    """Yield the spans of a field's thoughts before the answer's own words."""
    words = message.get("content")
    limit = turn.rfind(words.strip()) if isinstance(words, str) and words.strip() else len(turn)
    for name in REASONING:
        thoughts = message.get(name)
        if isinstance(thoughts, str) and thoughts.strip():
            place = turn.find(thoughts.strip(), 0, max(limit, 0))
            if place >= 0:
                yield place, place + len(thoughts.strip())


def lost_calls(text: str, messages: Sequence[Mapping[str, Any]], turns: Iterable[Span | None]) -> Iterator[RowFinding]:
    """Yield a finding for the first tool call that is missing in a text; `turns` are the assistant's characters."""
    assistant = iter(turns)
    for index, message in enumerate(messages):
        turn = next(assistant) if message["role"] == "assistant" else None
        lost_texts = lost_parts(text if turn is None else text[slice(*turn)], message.get("tool_calls"))
        if lost_texts:
            more = f" and {len(lost_texts) - _LOST_SHOWN} more" if len(lost_texts) > _LOST_SHOWN else ""
            yield RowFinding(
                kind="tool-call-lost",
                detail=f"the text of the turn lacks {', '.join(lost_texts[:_LOST_SHOWN])}{more} of its tool calls",
                advice=_CORRECT_CALLS,
                message=index + 1,
                texts={} if turn is None else {"turn": text[slice(*turn)]},
            )
            return


def lost_parts(text: str, calls: Any) -> list[str]:
    """Return the names and argument values of a turn's tool calls that its text lacks.

    A value may occur unchanged, as JSON, or as JSON within JSON; a number or boolean as JSON or Python. Example: text
    'lookup {"query": "x"}', a call of `lookup` with query "y" -> ['"y"'].
    """
    return [part for part, forms in _parts(calls) if not any(form in text for form in forms)]


def _parts(calls: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield (shown text, possible forms) of each name and value in calls."""
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        name = function.get("name")
        if isinstance(name, str) and name.strip():
            yield f"the name {name!r}", _forms_of_text(name)
        yield from _arguments(function.get("arguments"))


def _arguments(arguments: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(arguments, str):
        try:
            content = json.loads(arguments)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, (Mapping, list)):
            if arguments.strip():
                yield f"the arguments {arguments!r}", _forms_of_text(arguments)
            return
        arguments = content
    for value in leaves_of(arguments):
        if isinstance(value, str):
            if value.strip():
                yield json.dumps(value, ensure_ascii=False), _forms_of_text(value)
        elif value is not None:
            yield json.dumps(value), {json.dumps(value), str(value)}


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the values and field names inside nested lists and objects, in any order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += [*item.values(), *map(str, item)]
        elif isinstance(item, (list, tuple)):
            stack += item
        else:
            yield item


def _forms_of_text(text: str) -> set[str]:
    """Return the forms of a stripped text: unchanged, as JSON, and as JSON within JSON."""
    forms = {text.strip()}
    for is_ascii in (False, True):
        once = json.dumps(text.strip(), ensure_ascii=is_ascii)[1:-1]
        forms |= {once, json.dumps(once, ensure_ascii=is_ascii)[1:-1]}
    return forms
