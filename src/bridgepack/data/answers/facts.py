"""What one chat template writes around answers, learned from it and from renders of small conversations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Self

from jinja2 import nodes

from bridgepack.data.answers.regions import TurnTexts
from bridgepack.data.tokenizers.generation_prompt import fixed_prompt
from bridgepack.data.tokenizers.probe import render_chat, run_limited
from bridgepack.data.tokenizers.templates import ChatTemplate
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import ASSISTANT

#: Letters of a constant at which texts are cut; shorter ones are no markers.
_LEAST = 3
_QUESTION, _ANSWER, _LAST, _NAME = "Qoneq", "Qtwoq", "Qthreeq", "qcallq"


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateFacts:
    """What a chat template writes around answers with the variables of its recipe."""

    headers: tuple[str, ...]  #: texts right before what the assistant writes; empty if none are known
    ends: tuple[str, ...]  #: texts that end an answer, preferred first; without any, the next turn ends it
    has_blocks: bool  #: the template's own `{% generation %}` blocks show answers
    #: in chats with calls each header begins one answer, which its first end ends
    has_plain_calls: bool
    chat_end: str  #: text once behind the end of the last answer; empty if there is none
    generation_prompt: str | None  #: None if conversations may have several

    @classmethod
    def of(cls, tokenizer: ChatTokenizer, around: TurnTexts) -> Self:
        """Return the facts of a tokenizer's chat template; `around` are its markers of turns.

        Raises:
            TokenizerError: the template takes too much time or memory.
        """
        return cls(
            headers=around.headers,
            ends=around.ends,
            has_blocks=tokenizer.has_generation_blocks,
            has_plain_calls=_shows_turns_with_calls(tokenizer, around.headers, around.ends),
            chat_end=_chat_end_of(tokenizer, around.ends),
            generation_prompt=run_limited(tokenizer, partial(fixed_prompt, tokenizer), {}),
        )


def constants_of(template: ChatTemplate) -> list[str]:
    """Return the texts that a template may look for in what turns say, the longest first."""
    constants = {node.value.strip() for node in template.tree().find_all(nodes.Const) if isinstance(node.value, str)}
    return sorted((text for text in constants if len(text) >= _LEAST), key=lambda text: (-len(text), text))


def _chat_end_of(tokenizer: ChatTokenizer, ends: Sequence[str]) -> str:
    """Return what the chat template writes once, behind the end of a conversation's last answer; empty if nothing.

    `ends` are texts that end an answer. Example: Phi-4-mini -> `<|endoftext|>`, behind the last `<|end|>`.
    """
    turns = [{"role": "user", "content": _QUESTION}, {"role": ASSISTANT, "content": _ANSWER}]
    short, long = render_chat(tokenizer, turns) or "", render_chat(tokenizer, [*turns, *turns]) or ""
    behind, between = short.rpartition(_ANSWER)[2], long.partition(_ANSWER)[2].partition(_QUESTION)[0]
    places = [(behind.find(end), -len(end), end) for end in ends if end in behind and end in between]
    if not places:
        return ""
    place, _, end = min(places)
    tail = behind[place + len(end) :]
    return tail if tail.strip() and long.endswith(tail) and tail not in between else ""


def _shows_turns_with_calls(tokenizer: ChatTokenizer, headers: Sequence[str], ends: Sequence[str]) -> bool:
    """Return whether in chats with calls each header begins one answer, which its first end ends.

    `headers` and `ends` are texts that begin and end an answer. False for GigaChat3, whose calls stand behind an end,
    and for DeepSeek-R1, which writes a second header for the text beside a call, and none behind a result.
    """
    for content, arguments in product((_ANSWER, "", None), ({}, "{}")):
        call = {"id": "call00001", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        calling = {"role": ASSISTANT, "content": content, "tool_calls": [call]}
        result = {"role": "tool", "name": _NAME, "tool_call_id": "call00001", "content": _QUESTION}
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": _QUESTION},
            calling,
            result,
            {"role": ASSISTANT, "content": _LAST},
        ]
        text = render_chat(tokenizer, turns) or ""
        answers = [_up_to(part, ends) for part in _split(text, headers)[1:]]
        if text and (len(answers) != 2 or _LAST not in answers[1] or (_NAME in text) != (_NAME in answers[0])):
            return False
    return True


def _split(text: str, separators: Sequence[str]) -> list[str]:
    return re.split("|".join(map(re.escape, sorted(separators, key=len, reverse=True))), text)


def _up_to(text: str, ends: Sequence[str]) -> str:
    """Return a text up to the first of some ends."""
    return _split(text, ends)[0] if ends else text
