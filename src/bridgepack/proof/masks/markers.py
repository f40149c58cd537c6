"""Derives what the assistant wrote from the text alone: learns what a template writes around turns, and looks for it.

The marks are learned from renders of conversations whose words are known, whatever the template is called. They are
then looked for in the rendered text. No render of the conversation's parts is needed, so a template that writes a turn
in several ways is judged as well. A conversation whose own words hold such a mark is not: nothing in its text tells
the words from the template's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from typing import Any

from bridgepack.proof.masks.prefixes import ASSISTANT, NO_PROMPT, OTHER_PROMPT, Render
from bridgepack.proof.masks.votes import (
    NOT_JUDGED,
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    common_prefix,
    leave_blanks,
    no_votes,
    silent,
    without_open_tag,
)

#: Words of the conversations that marks are learned from; no template has them.
_WORDS = ("Qzeroq", "Qoneq", "Qtwoq", "Qthreeq")
#: Answers with calls, in the forms that templates take.
_CALLS: tuple[Mapping[str, Any], ...] = tuple(
    {
        "content": content,
        "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "qcallq", "arguments": arguments}}],
    }
    for content, arguments in product(("", None), ({}, "{}"))
)
#: Answers with more than words: how they begin belongs to them, and not to the mark.
_ANSWERS: tuple[Mapping[str, Any], ...] = ({"reasoning_content": _WORDS[3]}, {"thinking": _WORDS[3]}, *_CALLS)
USER = "user"
_OTHER_ROLES = (USER, "system", "tool")

NO_PLAIN_CHAT = "the template refuses a plain conversation of user and assistant"
WORDS_LOST = "the template does not write what a plain conversation says"
NO_END = "nothing of its own ends the template's assistant turns"
NO_BEGINNING = "nothing of its own begins the template's assistant turns"
MARKS_IN_WORDS = "the conversation's own words hold the template's marks"
OTHER_NUMBER = "the marks of assistant turns are not as many as the turns"
CALLS_END_OTHERWISE = "the template ends turns with tool calls in another way than turns without"
END_NOT_FOUND = "an assistant turn has no known end"


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedMarks:
    """What a template writes around an assistant's turn."""

    opening: str  #: right before the turn's own text
    closings: tuple[str, ...]  #: one of them ends the turn; they are the assistant's to write
    doubt: str = ""  #: why `opening` may be more than the header of a turn; empty where it is the generation prompt
    others: tuple[str, ...] = ()  #: right before the text of turns of others, as far as they are known
    ends_calls: bool = True  #: a closing ends turns with tool calls, too

    def closing_at(self, text: str, position: int) -> int:
        """Return where a closing at a character and white space after it end; the position itself where none is."""
        cores = [mark.rstrip() for mark in self.closings]
        stop = max((position + len(core) for core in cores if text.startswith(core, position)), default=position)
        return stop if stop == position else len(text) - len(text[stop:].lstrip())

    def are_in(self, words: Iterable[str]) -> bool:
        """Say whether some words hold a mark."""
        cores = {mark.strip() for mark in (self.opening, *self.closings, *self.others)}
        return any(core in text for text in words for core in cores)


def learn_marks(render: Render) -> LearnedMarks | str:
    """Return what a template writes around an assistant's turn, or why that cannot be told."""
    first, second, third, fourth = _WORDS
    asked = [_message(USER, first)]
    chat = render([*asked, _message(ASSISTANT, second), _message(USER, third), _message(ASSISTANT, fourth)])
    if chat is None:
        return NO_PLAIN_CHAT
    gaps = _between(chat, _WORDS)
    if gaps is None:
        return WORDS_LOST
    prompt = _after(render(asked, has_prompt=True), first)
    plain = _after(render(asked), first)
    has_prompt = prompt is not None and prompt != plain
    answers = [_after(render([*asked, {**_message(ASSISTANT, second), **more}]), first) for more in _ANSWERS]
    begun = [prompt, *answers] if has_prompt else answers
    heads = [gaps[1], gaps[3], *(text for text in begun if text is not None)]
    shared = without_open_tag(reduce(lambda one, other: one[: common_prefix(one, other)], heads))
    opening = _without_beginning(shared, plain)
    closings = _closings(render, middle=gaps[2], tail=gaps[4])
    if not opening.strip():
        return NO_BEGINNING
    if not closings:
        return NO_END
    others = tuple(dict.fromkeys(_other_openings(render, closings)))
    return LearnedMarks(
        opening=opening,
        closings=closings,
        doubt=NO_PROMPT if not has_prompt else "" if shared == prompt else OTHER_PROMPT,
        others=others,
        ends_calls=_ends_calls(render, closings, others),
    )


def derive_from_marks(
    text: str, messages: Sequence[Mapping[str, Any]], words: Iterable[str], marks: LearnedMarks | str
) -> Derivation:
    """Return what the assistant wrote of a rendered conversation with messages, which brings words of its own."""
    if isinstance(marks, str):
        return silent(text, marks)
    if marks.are_in(words):
        return silent(text, MARKS_IN_WORDS)
    if not marks.ends_calls and any(message.get("tool_calls") for message in messages):
        return silent(text, CALLS_END_OTHERWISE)
    openings = [found.start() for found in re.finditer(re.escape(marks.opening), text)]
    if len(openings) != sum(message["role"] == ASSISTANT for message in messages):
        return silent(text, OTHER_NUMBER)
    votes = no_votes(len(text))
    votes[:] = NOT_TRAINED
    turns: list[Span | None] = []
    for place, following in pairwise([*openings, len(text)]):
        first = place + len(marks.opening)
        limit = min((at for mark in marks.others if (at := text.find(mark, first, following)) >= 0), default=following)
        if marks.doubt:
            votes[place:first] = NOT_JUDGED
        stop = _end(text, marks, first, limit)
        turns.append(None if stop is None else (first, stop))
        votes[first : limit if stop is None else stop] = NOT_JUDGED if stop is None else TRAINED
    leave_blanks(votes, text, turns)
    reasons = [*([marks.doubt] if marks.doubt else []), *([END_NOT_FOUND] if None in turns else [])]
    return Derivation(votes=votes, turns=tuple(turns), reasons=tuple(reasons))


def derive_from_blocks(
    text: str, blocks: Sequence[Span], turns: Sequence[Span | None], marks: LearnedMarks | str
) -> Derivation:
    """Return what a template's own generation blocks say that the assistant wrote.

    What ends a turn behind its block is not judged: some templates put it inside, some outside. The turns are those
    that another derivation knows, to tell the last.
    """
    votes = no_votes(len(text))
    votes[:] = NOT_TRAINED
    for start, stop in blocks:
        votes[start:stop] = TRAINED
        votes[stop : _closed(text, stop, turns, marks)] = NOT_JUDGED
    leave_blanks(votes, text, [*blocks, *turns])
    return Derivation(votes=votes, turns=tuple(turns))


def _closed(text: str, stop: int, turns: Sequence[Span | None], marks: LearnedMarks | str) -> int:
    """Return where what ends the turn of a block ends: of the closing that follows it, else of the turn."""
    if not isinstance(marks, str):
        return marks.closing_at(text, stop)
    return next((turn[1] for turn in turns if turn is not None and turn[0] <= stop <= turn[1]), stop)


def _end(text: str, marks: LearnedMarks, first: int, limit: int) -> int | None:
    """Return where a turn's first closing ends, before another turn of the assistant begins."""
    found = [(text.find(mark.rstrip(), first, limit), mark) for mark in marks.closings]
    places = [place for place, _ in found if place >= 0]
    if not places:
        return None
    place = min(places)
    return max(place + len(mark.rstrip()) for at, mark in found if at == place)


def _closings(render: Render, *, middle: str, tail: str) -> tuple[str, ...]:
    """Return what ends the last turn, and what ends one that a user follows."""
    if not tail.strip():
        return ()
    if middle.startswith(tail.rstrip()):
        return (middle[: common_prefix(middle, tail)],)
    asked = [_message(USER, _WORDS[0])]
    users = render([*asked, _message(USER, _WORDS[1])])
    alone = _after(render(asked), _WORDS[0])
    gaps = _between(users, _WORDS[:2]) if users is not None else None
    if gaps is None or alone is None or not gaps[1].startswith(alone):
        return ()
    header = gaps[1][len(alone) :]
    if not header.strip() or not middle.endswith(header) or not middle[: -len(header)].strip():
        return ()
    return middle[: -len(header)], tail


def _other_openings(render: Render, closings: Sequence[str]) -> Iterator[str]:
    """Yield what stands before the words of turns that follow an answer."""
    answered = [_message(USER, _WORDS[0]), _message(ASSISTANT, _WORDS[1])]
    for role in _OTHER_ROLES:
        gaps = _between(render([*answered, _message(role, _WORDS[2])]) or "", _WORDS[:3])
        closing = next((mark for mark in closings if gaps is not None and gaps[2].startswith(mark)), None)
        if gaps is not None and closing is not None and gaps[2][len(closing) :].strip():
            yield gaps[2][len(closing) :]


def _ends_calls(render: Render, closings: Sequence[str], others: Sequence[str]) -> bool:
    """Say whether turns with tool calls end as others do, at the end of a conversation and before a user's turn."""
    ends = []
    for call in _CALLS:
        called = [_message(USER, _WORDS[0]), {**_message(ASSISTANT, ""), **call}]
        text = render(called)
        followed = (render([*called, _message(USER, _WORDS[2])]) or "").partition(_WORDS[2])[0]
        header = max((mark for mark in others if followed.endswith(mark)), key=len, default="")
        ends += [text] if text is not None else []
        ends += [followed[: -len(header)]] if header else []
    return bool(ends) and all(text.rstrip().endswith(tuple(mark.rstrip() for mark in closings)) for text in ends)


def _message(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "content": words}


def _between(text: str, words: Sequence[str]) -> list[str] | None:
    """Return what stands before, between and after some words; None where they do not stand there once, in order."""
    gaps = []
    rest = text
    for word in words:
        before, found, rest = rest.partition(word)
        if not found or word in rest:
            return None
        gaps.append(before)
    return [*gaps, rest]


def _after(text: str | None, word: str) -> str | None:
    return None if text is None or word not in text else text.rpartition(word)[2]


def _without_beginning(text: str, beginning: str | None) -> str:
    """Return a text without a beginning that is not all of it: what ends the user's turn is no mark of the next."""
    if beginning is None or not text.startswith(beginning) or not text[len(beginning) :].strip():
        return text
    return text[len(beginning) :]
