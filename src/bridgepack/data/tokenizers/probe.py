"""Probes a tokenizer and its chat template with small conversations; the results go into the manifest."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.errors import RowError, TokenizerError

if TYPE_CHECKING:
    from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

_QUESTION, _ANSWER = "Probe question?", "Probe answer."
_NAMES = ("probe_function", "other_function")
_ARGUMENT = "probe_argument_value"

#: Normalisers that only compose or decompose characters and leave ASCII unchanged.
_COMPOSING = frozenset({"NFC", "NFD", "NFKC", "NFKD"})


def no_template_error(tokenizer: Any, name: str, names: str) -> TokenizerError:
    """Return the error of a tokenizer of transformers that has not one chat template for all rows.

    `names` are those of its templates, if it has several. Some tokenizers, such as Kimi-K3's, render chats in Python:
    Megatron-Bridge 0.7 lets them, and here a template in Jinja has to write the same.
    """
    problem, template = "no chat template", "Set tokenizer.chat_template to a Jinja file"
    if names:
        problem = f"several named chat templates ({names}), but every row needs the same one"
    elif not type(tokenizer).apply_chat_template.__module__.startswith("transformers."):
        problem += f" in Jinja: its class {type(tokenizer).__name__} renders chats in Python, which is not used here"
        template += (
            " that writes the same text, and preprocessing.assistant_markers to the texts around an answer, e.g. for "
            "Kimi-K3 {assistant_start: '<|open|>message role=\"assistant\"<|sep|>', assistant_end: "
            "'<|close|>message<|sep|><|end_of_msg|>'}"
        )
    return TokenizerError(
        f"tokenizer.name_or_path is {name!r}; it has {problem}. {template}, or use preprocessing.kind "
        "prompt_completion.",
        field="tokenizer.name_or_path",
    )


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


def lost_fraction(tokenizer: ChatTokenizer, texts: Iterable[str]) -> float:
    """Return the fraction (0-1) of letters and digits that texts lose by encoding and decoding.

    Ignores Unicode composition, accents and case, because many tokenizers normalise these.
    """
    num_lost = num_characters = 0
    for text in texts:
        before = _letters(text)
        num_lost += (before - _letters(tokenizer.decode(tokenizer.encode(text)))).total()
        num_characters += before.total()
    return num_lost / num_characters if num_characters else 0.0


def _letters(text: str) -> Counter[str]:
    return Counter(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


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


def run_limited[T, R](tokenizer: ChatTokenizer, render: Callable[[T], R], argument: T) -> R:
    """Return `render(argument)`, which renders small conversations.

    Raises:
        RowError: the template rejects one.
        TokenizerError: the template takes too much time or memory.
    """
    try:
        with TimeLimit() as limit:
            return limit(render, argument)
    except RowError as error:
        if error.reason not in STOPPED:
            raise
        raise TokenizerError(
            f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; {error.detail} for a small conversation. "
            "Correct the template, or set tokenizer.chat_template to another.",
            field="tokenizer.name_or_path",
        ) from None


def keeps_bytes(backend: Any) -> bool:
    """Return whether the tokens of a `tokenizers.Tokenizer` are pieces of the text's bytes, without losing any.

    A normaliser may only compose or decompose characters, which leaves ASCII unchanged.
    """
    settings = {name: _state(getattr(backend, name)) for name in ("normalizer", "pre_tokenizer", "model", "decoder")}
    normalizers = _members(settings["normalizer"], "normalizers")
    splitters = _members(settings["pre_tokenizer"], "pretokenizers")
    return (
        settings["model"].get("type") == "BPE"
        and settings["decoder"].get("type") == "ByteLevel"
        and all(item.get("type") in _COMPOSING for item in normalizers)
        and any(item.get("type") == "ByteLevel" for item in splitters)
        and all(
            item.get("type") in ("ByteLevel", "Split", "Digits")
            and item.get("behavior") != "Removed"
            and not item.get("add_prefix_space")
            for item in splitters
        )
    )


def normalizes(backend: Any) -> bool:
    """Return whether a `tokenizers.Tokenizer` may change a text before it searches for tokens."""
    return bool(_members(_state(backend.normalizer), "normalizers"))


def _members(settings: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the parts of a sequence component, or the component itself in a list."""
    return list(settings[name]) if name in settings else [settings] if settings else []


def _state(part: Any) -> Mapping[str, Any]:
    """Return the settings of a tokenizer component; of a model only its type, because its vocabulary is large."""
    if part is None:
        return {}
    if hasattr(part, "tokenize"):
        return {"type": type(part).__name__}
    state: Mapping[str, Any] = json.loads(part.__getstate__())
    return state


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
