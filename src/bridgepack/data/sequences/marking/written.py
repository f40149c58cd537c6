"""What a chat template writes around answers, as a value of `preprocessing.assistant_markers`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import product
from typing import Any

from bridgepack.data.tokenizers.probe import render_chat, run_limited
from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT

_QUESTION, _ANSWER, _THOUGHT, _NAME = "Qoneq", "Qtwoq", "Qthreeq", "qcallq"
_ASKED: Mapping[str, Any] = {"role": "user", "content": _QUESTION}
_ANSWERED: Mapping[str, Any] = {"role": ASSISTANT, "content": _ANSWER}
#: What an answer may begin with.
_WORDS = re.compile("|".join((_ANSWER, _THOUGHT, _NAME)))


def markers_written(tokenizer: ChatTokenizer) -> str:
    """Return, as a value of `preprocessing.assistant_markers`, what the template writes around an answer; else empty.

    Spaces at the edges are left out, because tokens of the answer often hold them.
    """
    header, end = around_answer(tokenizer)
    start, end = header.strip(" ").lstrip(), end.strip()
    if not start.strip() or not end:
        return ""
    return json.dumps({"assistant_start": start, "assistant_end": end}, ensure_ascii=False)


def around_answer(tokenizer: ChatTokenizer) -> tuple[str, str]:
    """Return what the template writes before every answer, without the end of the turn before, and behind every one.

    The end of the question itself if nothing follows it, as Mistral's `[/INST]`. An answer begins where the generation
    prompt and the headers of other answers, with thoughts and calls, differ from its own. What the template writes
    once, behind the last turn, is left out where an answer before a question shows what ends both.
    """
    alone, text, longer = (
        render_chat(tokenizer, turns) or "" for turns in ([_ASKED], [_ASKED, _ANSWERED], [_ASKED, _ANSWERED, _ASKED])
    )
    behind, tokens = text.rpartition(_ANSWER)[2], list(tokenizer.added_tokens)
    end = _shared_start(behind, longer.partition(_ANSWER)[2].partition(_QUESTION)[0], tokens)
    chat_end = behind[len(end) :] if end.strip() else ""
    gap = reduce(lambda first, second: _shared_start(first, second, tokens), _gaps(tokenizer, text))
    header = gap.removeprefix(alone.rpartition(_QUESTION)[2].removesuffix(chat_end))
    if not behind.strip():
        end = _end_before_question(longer, tokens)
    end = end if end.strip() else behind
    return header if header.strip() else gap, _end_of_all(tokenizer, end, chat_end)


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


def _shared_start(first: str, second: str, tokens: Iterable[str]) -> str:
    """Return the beginning that two texts share, without a part of a token: "a<b>", "a<c>", ["<b>"] -> "a"."""
    stop = common_prefix(first, second)
    pattern = "|".join(map(re.escape, sorted(filter(None, tokens), key=len, reverse=True))) or "(?!)"
    for text in (first, second):
        matches = re.finditer(pattern, text)
        stop = min((match.start() for match in matches if match.start() < stop < match.end()), default=stop)
    return first[:stop]
