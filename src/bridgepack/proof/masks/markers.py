"""Derives from the text alone what the assistant wrote: learns a template's marks around turns, and finds them.

The marks are learned from renders of conversations with known words, for any template, and then searched for in the
rendered text. This needs no renders of the conversation's parts, so it also judges templates that write a turn in
several ways. It does not judge a conversation whose own words contain a mark, because the text then does not show
which marks are the template's.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from typing import Any

from bridgepack.data.tokenizers.texts import common_prefix, without_open_tag
from bridgepack.proof.masks.prefixes import NO_PROMPT, OTHER_PROMPT
from bridgepack.proof.masks.renders import ASSISTANT, Render
from bridgepack.proof.masks.votes import (
    NOT_JUDGED,
    NOT_TRAINED,
    TRAINED,
    Derivation,
    Span,
    leave_blanks,
    no_votes,
    silent,
)
from bridgepack.records import THOUGHT_MARKERS

#: Words of the conversations that marks are learned from; no template contains them.
_WORDS, _CALL = ("Qzeroq", "Qoneq", "Qtwoq", "Qthreeq"), "qcallq"
#: Answers with calls, in the forms that templates accept.
_CALLS: tuple[Mapping[str, Any], ...] = tuple(
    {
        "content": content,
        "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": _CALL, "arguments": arguments}}],
    }
    for content, arguments in product(("", None), ({}, "{}"))
)
#: Answers with more than words: their beginning belongs to them, not to the mark.
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
NO_BLOCKS = "the template writes no generation block, so the marks of turns say what is trained"
END_NOT_FOUND = "an assistant turn has no known end"


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedMarks:
    """The marks that a template writes around an assistant turn."""

    opening: str  #: right before the turn's own text
    closings: tuple[str, ...]  #: one of them ends the turn; the assistant writes them
    doubt: str = ""  #: why `opening` may be more than a turn's header; empty if it equals the generation prompt
    others: tuple[str, ...] = ()  #: right before the text of other roles' turns, if known
    #: those of them behind an answer that no closing ends: they may end it
    endings: frozenset[str] = frozenset()
    ends_calls: bool = True  #: a closing ends turns with tool calls, too
    is_last_open: bool = False  #: the last turn has no closing, and the text's end ends it

    @property
    def header(self) -> str:
        """`opening` without what it has of the answer itself: a thought, or what stands behind a header's end.

        Headers of all roles end alike: with others such as `[user]`, that of `[bot]>>>` is `[bot]`.
        """
        places = [place for text in self.others for place in _shared_end(self.opening, text)]
        place, end = max(places, key=lambda place: len(place[1]), default=(len(self.opening), ""))
        header = self.opening[: place + len(end)]
        return min((header.partition(opening)[0] for opening, *_ in THOUGHT_MARKERS), key=len)

    def closing_at(self, text: str, position: int) -> int:
        """Return the end of a closing at `position` with the white space after it; `position` if there is none."""
        cores = [mark.rstrip() for mark in self.closings]
        stop = max((position + len(core) for core in cores if text.startswith(core, position)), default=position)
        return stop if stop == position else len(text) - len(text[stop:].lstrip())

    def are_in(self, words: Iterable[str]) -> bool:
        """Return whether any of the words contains a mark."""
        cores = {mark.strip() for mark in (self.opening, *self.closings, *self.others)}
        return any(core in text for text in words for core in cores)


def learn_marks(render: Render) -> LearnedMarks | str:
    """Return a template's marks around assistant turns, or the reason why they cannot be learned."""
    first, second, third, fourth = _WORDS
    question = [_message(USER, first)]
    chat = render([*question, _message(ASSISTANT, second), _message(USER, third), _message(ASSISTANT, fourth)])
    if chat is None:
        return NO_PLAIN_CHAT
    gaps = _between(chat, _WORDS)
    if gaps is None:
        return WORDS_LOST
    prompt = _after(render(question, has_prompt=True), first)
    plain = _after(render(question), first)
    has_prompt = prompt is not None and prompt != plain
    answers = [_after(render([*question, {**_message(ASSISTANT, second), **more}]), first) for more in _ANSWERS]
    answer_starts = [prompt, *answers] if has_prompt else answers
    heads = [gaps[1], gaps[3], *(text for text in answer_starts if text is not None)]
    shared_head = without_open_tag(reduce(lambda head, next_head: head[: common_prefix(head, next_head)], heads))
    # the user turn's end, if more follows, is not a mark of the next turn
    begins_alike = plain is not None and shared_head.startswith(plain) and shared_head[len(plain) :].strip()
    opening = shared_head[len(plain or "") :] if begins_alike else shared_head
    closings = _closings(render, before=gaps[1], middle=gaps[2], tail=gaps[4])
    if not opening.strip():
        return NO_BEGINNING
    if not closings:
        return NO_END
    is_last_open = not gaps[4].strip()
    if is_last_open:  # the generation prompt may also end the turn before, which the turn itself leaves open
        opening = reduce(str.removeprefix, closings, opening)
    has_closing = dict(_other_openings(render, closings))
    other_openings = tuple(has_closing)
    return LearnedMarks(
        opening=opening,
        closings=closings,
        doubt=NO_PROMPT if not has_prompt else "" if shared_head == prompt else OTHER_PROMPT,
        others=other_openings,
        endings=frozenset(opening for opening in other_openings if not has_closing[opening]),
        ends_calls=_ends_calls(render, opening, closings, other_openings, is_last_open=is_last_open),
        is_last_open=is_last_open,
    )


def learn_block_ends(render_marked: Callable[..., tuple[str, list[Span]] | None]) -> tuple[str, ...]:
    """Return what a template writes behind the last generation block of a chat that ends with an answer."""
    ends: dict[str, None] = {}
    for answer in ({}, *_CALLS):
        chat = render_marked([_message(USER, _WORDS[0]), {**_message(ASSISTANT, _WORDS[1]), **answer}], None, {})
        text, blocks = chat or ("", [])
        if blocks and (end := text[blocks[-1][1] :].rstrip()):
            ends[end] = None
    return tuple(ends)


def derive_from_marks(
    text: str, messages: Sequence[Mapping[str, Any]], words: Iterable[str], marks: LearnedMarks | str
) -> Derivation:
    """Return the derivation of a rendered conversation by marks; `words` are the conversation's own texts."""
    if isinstance(marks, str):
        return silent(text, marks)
    if marks.are_in(words):
        return silent(text, MARKS_IN_WORDS)
    if not marks.ends_calls and any(item.get("tool_calls") or item["role"] == "tool" for item in messages):
        return silent(text, CALLS_END_OTHERWISE)
    openings = [match.start() for match in re.finditer(re.escape(marks.opening), text)]
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
        if stop is None and marks.is_last_open and limit == len(text):
            stop = limit
        turns.append(None if stop is None else (first, stop))
        if stop is None:  # what opens the next turn may end it, as GLM's
            stop = limit + max((len(mark) for mark in marks.endings if text.startswith(mark, limit)), default=0)
            votes[first:stop] = NOT_JUDGED
        else:
            votes[first:stop] = TRAINED
    leave_blanks(votes, text, turns)
    reasons = [*([marks.doubt] if marks.doubt else []), *([END_NOT_FOUND] if None in turns else [])]
    return Derivation(votes=votes, turns=tuple(turns), reasons=tuple(reasons))


def derive_from_blocks(
    text: str,
    blocks: Sequence[Span],
    turns: Sequence[Span | None],
    marks: LearnedMarks | str,
    ends: Sequence[str] = (),
) -> Derivation:
    """Return the derivation of a conversation by the template's own generation blocks.

    Does not judge a turn's end after its block: some templates put it inside, some outside. `ends` are what a template
    is known to write there, such as Gemma 4's `<|tool_response>` behind a call. The turns come from
    another derivation, to find the last one; a block that has begun before a turn is the turn's, header included.
    """
    if not any(text[slice(*block)] for block in blocks):
        return silent(text, NO_BLOCKS)
    votes = no_votes(len(text))
    votes[:] = NOT_TRAINED
    for start, stop in blocks:
        votes[start:stop] = TRAINED
        if isinstance(marks, str):
            closing_end = next((turn[1] for turn in turns if turn is not None and turn[0] <= stop <= turn[1]), stop)
        else:
            closing_end = marks.closing_at(text, stop)
        closing_end = max(closing_end, stop + max((len(end) for end in ends if text.startswith(end, stop)), default=0))
        votes[stop:closing_end] = NOT_JUDGED
    leave_blanks(votes, text, [*blocks, *turns])
    return Derivation(votes=votes, turns=tuple(None if turn is None else _with_header(turn, blocks) for turn in turns))


def _with_header(turn: Span, blocks: Sequence[Span]) -> Span:
    """Return a turn from where the block around its beginning begins."""
    first, stop = turn
    return next((start for start, end in blocks if start < first < end), first), stop


def _end(text: str, marks: LearnedMarks, first: int, limit: int) -> int | None:
    """Return the end of a turn's first closing before the next assistant turn, or None."""
    matches = [(text.find(mark.rstrip(), first, limit), mark) for mark in marks.closings]
    places = [place for place, _ in matches if place >= 0]
    if not places:
        return None
    place = min(places)
    return max(place + len(mark.rstrip()) for at, mark in matches if at == place)


def _closings(render: Render, *, before: str, middle: str, tail: str) -> tuple[str, ...]:
    """Return the closings of the last turn, if it has one, and of a turn before a user turn.

    `before` and `middle` stand before and behind an answer within a chat, `tail` behind the last.
    """
    if tail.strip() and middle.startswith(tail.rstrip()):
        return (middle[: common_prefix(middle, tail)],)
    question = [_message(USER, _WORDS[0])]
    users = render([*question, _message(USER, _WORDS[1])])
    alone = _after(render(question), _WORDS[0])
    gaps = _between(users, _WORDS[:2]) if users is not None else None
    if gaps is None or alone is None or not gaps[1].startswith(alone):
        return ()
    header = gaps[1][len(alone) :]
    if not header.strip() or not middle.endswith(header):
        return ()
    end = middle[: -len(header)] or _end_before_header(render, before, middle)
    return (end, *([tail] if tail.strip() else [])) if end.strip() else ()


def _end_before_header(render: Render, before: str, middle: str) -> str:
    """Return what ends a turn only where another follows, whoever's both are; empty if nothing does.

    The texts before and behind an answer then begin with it, before what also begins the first turn of a chat.
    Example: Qwen1's `<|im_end|>` before `<|im_start|>`.
    """
    begin = (render([_message("system", _WORDS[0])]) or "").partition(_WORDS[0])[0]
    separator = before[: common_prefix(before, middle)]
    return next((separator[:place] for place in range(len(separator)) if separator[place:] in begin), "")


def _other_openings(render: Render, closings: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the marks before the words of turns that follow an answer, and whether a closing ends it before them."""
    exchange = [_message(USER, _WORDS[0]), _message(ASSISTANT, _WORDS[1])]
    for role in _OTHER_ROLES:
        gaps = _between(render([*exchange, _message(role, _WORDS[2])]) or "", _WORDS[:3])
        if gaps is not None:
            closing = max((mark for mark in closings if gaps[2].startswith(mark)), key=len, default="")
            opening = gaps[2][len(closing) :]
            yield from [(opening, bool(closing))] if opening.strip() else []


def _ends_calls(
    render: Render, opening: str, closings: Sequence[str], other_openings: Sequence[str], *, is_last_open: bool
) -> bool:
    """Return whether turns with tool calls end like others, at the conversation's end and before a user turn.

    They do not where a call stands behind an end, the turn has a second opening, or its result stands within the turn.
    """
    ends = []
    for call in _CALLS:
        calls = [_message(USER, _WORDS[0]), {**_message(ASSISTANT, ""), **call}]
        text = render(calls)
        turn = (text or "").partition(opening)[2]
        if opening in turn or any(mark.strip() in turn.rpartition(_CALL)[0] for mark in closings):
            return False
        result = {**_message("tool", _WORDS[1]), "name": _CALL, "tool_call_id": "call00001"}
        turn = (render([*calls, result, _message(USER, _WORDS[2])]) or "").partition(opening)[2]
        if _WORDS[1] in min((turn.partition(mark.strip())[0] for mark in closings), key=len):
            return False
        before_next = (render([*calls, _message(USER, _WORDS[2])]) or "").partition(_WORDS[2])[0]
        header = max((mark for mark in other_openings if before_next.endswith(mark)), key=len, default="")
        ends += [text] if text is not None and not is_last_open else []
        ends += [before_next[: -len(header)]] if header else []
    return bool(ends) and all(text.rstrip().endswith(tuple(mark.rstrip() for mark in closings)) for text in ends)


def _shared_end(opening: str, header: str) -> Iterator[tuple[int, str]]:
    """Yield the longest end of a header that stands in an opening, behind what both begin with, and its place there."""
    begin = common_prefix(opening, header)
    for start in range(begin, len(header)):
        place = opening.find(header[start:], begin)
        if place >= 0:
            yield place, header[start:]
            return


def _message(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "content": words}


def _between(text: str, words: Sequence[str]) -> list[str] | None:
    """Return the texts before, between and after words; None unless each word occurs once, in order."""
    gaps = []
    remainder = text
    for word in words:
        before, separator, remainder = remainder.partition(word)
        if not separator or word in remainder:
            return None
        gaps.append(before)
    return [*gaps, remainder]


def _after(text: str | None, word: str) -> str | None:
    return None if text is None or word not in text else text.rpartition(word)[2]
