"""Control tokens that open a turn of any role, read off renders of short conversations.

A family's markers name few roles. Templates write others, such as Llama 3.1's `ipython` or GLM's `<|observation|>`, and
a scan for the end of an answer must not run into them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from bridgepack.data.templates.probe import render_chat
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

#: Words that no template has.
_QUESTION, _ANSWER, _NEXT = "Qoneq", "Qtwoq", "Qthreeq"
_ID = "call00001"
_ROLES = ("user", "system", "developer")
Turn = dict[str, Any]


def opening_tokens(tokenizer: ChatTokenizer, ends: Sequence[str]) -> frozenset[int]:
    """Return the added tokens that the chat template writes first in a turn that follows an answer.

    `ends` are texts that end an answer. One that the template writes in place of an opener is an opener, too.
    Example: Llama 3.1 -> the id of `<|start_header_id|>`; GLM -> those of `<|user|>` and `<|observation|>`.
    """
    isolated_ids = tokenizer.isolated_token_ids
    added_ids = {
        text: index for text, index in tokenizer.added_tokens.items() if text.strip() and index in isolated_ids
    }
    openers = (_opener(shorter, longer, ends, added_ids) for shorter, longer in _renders(tokenizer))
    return frozenset(added_ids[text] for text in openers if text in added_ids)


def tokens_inside(tokenizer: ChatTokenizer, headers: Sequence[str], ends: Sequence[str]) -> frozenset[int]:
    """Return the added tokens that the chat template writes within an answer, between its header and its end.

    They open a part of it, as Kimi-K3's `<|open|>`, which also begins every turn.
    """
    question, answer = {"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}
    text = (render_chat(tokenizer, [question, answer]) or "").partition(_QUESTION)[2]
    turn = min((text.partition(header)[2] for header in headers if header in text), key=len, default="")
    stop = min((place for end in ends if (place := turn.find(end)) >= 0), default=0)
    return frozenset(index for token, index in tokenizer.added_tokens.items() if token in turn[:stop])


def _renders(tokenizer: ChatTokenizer) -> Iterator[tuple[str, str]]:
    """Yield renders of a question with its answer, or with a call, and of the same with a turn that follows it."""
    for before, following in _conversations():
        shorter, longer = (render_chat(tokenizer, turns) for turns in (before, [*before, following]))
        if shorter is not None and longer is not None:
            yield shorter, longer


def _conversations() -> Iterator[tuple[list[Turn], Turn]]:
    question = {"role": "user", "content": _QUESTION}
    for role in _ROLES:
        yield [question, {"role": "assistant", "content": _ANSWER}], {"role": role, "content": _NEXT}
    for content, arguments in product(("", None), ({"key": _ANSWER}, f'{{"key": "{_ANSWER}"}}')):
        call = {"id": _ID, "type": "function", "function": {"name": "qcallq", "arguments": arguments}}
        calling = {"role": "assistant", "content": content, "tool_calls": [call]}
        yield [question, calling], {"role": "tool", "name": "qcallq", "tool_call_id": _ID, "content": _NEXT}


def _opener(shorter: str, longer: str, ends: Sequence[str], added_tokens: Iterable[str]) -> str:
    """Return the token that begins a render's last turn, or the end of an answer in its place; empty if neither."""
    words, stop = longer.find(_ANSWER), longer.find(_NEXT)
    if not 0 <= words < stop:
        return ""
    tokens = sorted((text for text in added_tokens if text in longer), key=len, reverse=True)
    num_shared = next(
        (at for at, pair in enumerate(zip(shorter, longer, strict=False)) if pair[0] != pair[1]), len(shorter)
    )
    place = max(num_shared, words + len(_ANSWER))
    for token in re.finditer("|".join(map(re.escape, tokens)) or "(?!)", longer):
        if token.start() < place < token.end():  # renders that share the beginning of a token
            place = token.start()
    gap, end_text = longer[place:stop].lstrip(), ""
    while end := max((end for end in ends if gap.startswith(end)), key=len, default=""):
        end_text, gap = end, gap[len(end) :].lstrip()
    if not end_text and not longer.startswith(shorter):  # what the answer itself still says may be in the gap
        return ""
    return next((text for text in tokens if gap.startswith(text)), end_text)
