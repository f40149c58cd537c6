"""Renders small conversations with a chat template; what they show goes into the manifest."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from bridgepack.data.tokenizers.limits import run_limited
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError

_QUESTION, _ANSWER = "Probe question?", "Probe answer."
_NAMES = ("probe_function", "other_function")
_ARGUMENT = "probe_argument_value"


def end_of_turn_ids(tokenizer: ChatTokenizer) -> list[int]:
    """Return the ids of added tokens that the chat template writes right after an assistant's text, ascending.

    Empty without a template, if it rejects a plain conversation, or if turns end with plain text.
    Example: ChatML -> the id of `<|im_end|>`; gpt-oss -> those of `<|end|>` and `<|return|>`.
    """
    question, answer = {"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}
    text = render_chat(tokenizer, [question, answer, question, answer]) or ""
    tails = [tail.lstrip() for tail in text.split(_ANSWER)[1:]]
    tokens = [(len(token), index, token) for token, index in tokenizer.added_tokens.items() if token]
    longest = (
        max((token_facts for token_facts in tokens if tail.startswith(token_facts[2])), default=None) for tail in tails
    )
    return sorted({token_facts[1] for token_facts in longest if token_facts is not None})


def drops_tool_names(tokenizer: ChatTokenizer) -> bool | None:
    """Return whether tool calls are rendered with their arguments but without the function's name.

    None without a template, or if it rejects or omits tool calls. Example: True for a template that writes a call's
    id instead of its name, such as Kimi K2's.
    """
    texts = [_text_of_call(tokenizer, name) for name in _NAMES]
    if any(text is None or _ARGUMENT not in text for text in texts):
        return None
    return texts[0] == texts[1]


def render_chat(
    tokenizer: ChatTokenizer, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str | None:
    """Return the text of a small conversation; None without a template, or if it rejects the conversation.

    Raises:
        TokenizerError: the template takes too much time or memory.
    """
    if tokenizer.chat_template is None:
        return None
    try:
        return run_limited(tokenizer, lambda turns: tokenizer.render_text(turns, tools), messages)
    except RowError:
        return None


def check_prompt(tokenizer: ChatTokenizer) -> None:
    """Check that the chat template writes a generation prompt, or none; raises TokenizerError as `limited`."""
    if tokenizer.chat_template is not None:
        with suppress(RowError):
            question: Sequence[Mapping[str, Any]] = [{"role": "user", "content": _QUESTION}]
            run_limited(tokenizer, lambda turns: tokenizer.render_served(turns, None, {}), question)


def _text_of_call(tokenizer: ChatTokenizer, name: str) -> str | None:
    """Return the text of a conversation with one tool call, in the first form that the template renders fully."""
    text = None
    for content, arguments in product(("", None), ({"key": _ARGUMENT}, f'{{"key": "{_ARGUMENT}"}}')):
        call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}
        answer = {"role": "assistant", "content": content, "tool_calls": [call]}
        text = render_chat(tokenizer, [{"role": "user", "content": _QUESTION}, answer]) or text
        if text is not None and _ARGUMENT in text:
            return text
    return text
