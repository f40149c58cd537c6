"""What a chat template writes around answers, as a value of `preprocessing.assistant_markers`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

from bridgepack.data.templates.probe import render_chat
from bridgepack.data.tokenizers.limits import run_limited
from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT

_QUESTION, _ANSWER, _THOUGHT, _NAME = "Qoneq", "Qtwoq", "Qthreeq", "qcallq"
_ASKED: Mapping[str, Any] = {"role": "user", "content": _QUESTION}
_ANSWERED: Mapping[str, Any] = {"role": ASSISTANT, "content": _ANSWER}
#: What an answer may begin with.
_WORDS = re.compile("|".join((_ANSWER, _THOUGHT, _NAME)))


class Around(NamedTuple):
    """What a chat template writes around every answer."""

    header: str  #: without the end of the turn before
    end: str  #: empty if nothing ends an answer that is not the last
    chat_end: str  #: what it writes once, behind the end of the last answer; empty if unknown

    @property
    def next_turn(self) -> str:
        """What begins another answer behind the last one, if the template writes that; empty if it does not."""
        return self.chat_end if self.chat_end.strip() and self.chat_end.strip() in self.header else ""


def markers_written(tokenizer: ChatTokenizer) -> str:
    """Return, as a value of `preprocessing.assistant_markers`, what the template writes around an answer; else empty.

    Spaces at the edges are left out, because tokens of the answer often hold them. Where the next turn ends an answer,
    the tokens that begin one, if they are tokens of their own.
    """
    around = around_answer(tokenizer)
    start, end = around.header.strip(" ").lstrip(), around.end.strip()
    if not start.strip():
        return ""
    ends: dict[str, Any] = {"assistant_end": end} if end else _stops(tokenizer)
    return json.dumps({"assistant_start": start, **ends}, ensure_ascii=False) if ends else ""


def around_answer(tokenizer: ChatTokenizer) -> Around:
    """Return what the template writes around every answer.

    As header the end of the question itself if nothing follows it, as Mistral's `[/INST]`. An answer begins where the
    generation prompt and the headers of other answers, with thoughts and calls, differ from its own. What the template
    writes once, behind the last turn, is no end where an answer before a question shows what ends both, or nothing.
    """
    alone, text, longer = (
        render_chat(tokenizer, turns) or "" for turns in ([_ASKED], [_ASKED, _ANSWERED], [_ASKED, _ANSWERED, _ASKED])
    )
    behind, tokens = text.rpartition(_ANSWER)[2], list(tokenizer.added_tokens)
    middle = longer.partition(_ANSWER)[2].partition(_QUESTION)[0]
    end = _shared_start(behind, middle, tokens)
    chat_end = behind[len(end) :] if end.strip() else ""
    gaps, question_end = list(_gaps(tokenizer, text)), alone.rpartition(_QUESTION)[2].removesuffix(chat_end)
    gap = _shared_start_of_all(gaps, tokens)
    if not gap.strip():  # they may begin with different white space, as in copies of DeepSeek-V3.1's
        gap, question_end = _shared_start_of_all([item.lstrip() for item in gaps], tokens), question_end.lstrip()
    header = gap.removeprefix(question_end)
    if not behind.strip():
        end = _end_before_question(longer, tokens)
    if not end.strip():
        end = behind if not middle or behind.strip() in middle else ""
    return Around(header if header.strip() else gap, _end_of_all(tokenizer, end, chat_end), chat_end)


def _stops(tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Return the tokens that begin turns behind an answer as fields of `assistant_markers`; empty if one has none."""
    starts: dict[str, str] = {}
    for turn in (_ASKED, {"role": "system", "content": _QUESTION}, {"role": "tool", "content": _QUESTION}):
        text = render_chat(tokenizer, [{**_ASKED, "content": _THOUGHT}, _ANSWERED, turn]) or ""
        gap = text.partition(_ANSWER)[2].partition(_QUESTION)[0].lstrip()
        token = max(filter(gap.startswith, filter(None, tokenizer.added_tokens)), key=len, default="")
        if token and _QUESTION in text:
            starts[turn["role"]] = token
    stops = list(dict.fromkeys(starts[role] for role in ("user", "tool") if role in starts))
    return {"stop_token": stops, "other_role_starts": starts} if "user" in starts else {}


def _gaps(tokenizer: ChatTokenizer, text: str) -> Iterator[str]:
    """Yield the texts between a question and what the assistant says; `text` is a question with its answer."""
    yield text.partition(_QUESTION)[2].partition(_ANSWER)[0]
    more = [{**_ANSWERED, field: _THOUGHT} for field in ("reasoning_content", "thinking")]
    chats = [[_ASKED, _ANSWERED] * 2, *([_ASKED, answer] for answer in (*more, *_calls()))]
    for chat in chats:
        for part in (render_chat(tokenizer, chat) or "").split(_QUESTION)[1:]:
            if match := _WORDS.search(part):
                yield part[: match.start()]
    plain = render_chat(tokenizer, [_ASKED]) or ""
    try:
        prompted_text = run_limited(tokenizer, lambda turns: tokenizer.render_served(turns, None, {}), [_ASKED])
    except RowError:
        return
    if prompted_text != plain and _QUESTION in prompted_text:
        yield prompted_text.rpartition(_QUESTION)[2]


def _end_before_question(text: str, tokens: Iterable[str]) -> str:
    """Return what stands behind an answer before what also begins the first question; for answers that end only there.

    Empty if that is all, as before GLM's questions. `text` is a question, its answer and a question.
    """
    middle, begin = text.partition(_ANSWER)[2].partition(_QUESTION)[0], text.partition(_QUESTION)[0]
    places = sorted(place for token in tokens if token and (place := middle.find(token)) >= 0)
    return next((middle[:place] for place in places if begin.endswith(middle[place:])), "")


def _end_of_all(tokenizer: ChatTokenizer, end: str, chat_end: str) -> str:
    """Return the end of answers; where one with a call ends otherwise, the last token that both have at their ends."""
    for call in _calls():
        text = (render_chat(tokenizer, [_ASKED, call]) or "").removesuffix(chat_end).rstrip()
        if _NAME not in text or text.endswith(end.rstrip()):
            continue
        tail = end.rstrip()[::-1][: common_prefix(end.rstrip()[::-1], text[::-1])][::-1]
        last = max(filter(tail.endswith, filter(None, tokenizer.added_tokens)), key=len, default="")
        end = last or end
    return end


def _calls() -> Iterator[dict[str, Any]]:
    for content, arguments in product(("", None), ({}, "{}")):
        call = {"id": "call00001", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        yield {"role": ASSISTANT, "content": content, "tool_calls": [call]}


def _shared_start_of_all(texts: Iterable[str], tokens: Iterable[str]) -> str:
    return reduce(lambda first, second: _shared_start(first, second, tokens), texts)


def _shared_start(first: str, second: str, tokens: Iterable[str]) -> str:
    """Return the beginning that two texts share, without a part of a token: "a<b>", "a<c>", ["<b>"] -> "a"."""
    stop = common_prefix(first, second)
    pattern = "|".join(map(re.escape, sorted(filter(None, tokens), key=len, reverse=True))) or "(?!)"
    for text in (first, second):
        matches = re.finditer(pattern, text)
        stop = min((match.start() for match in matches if match.start() < stop < match.end()), default=stop)
    return first[:stop]
