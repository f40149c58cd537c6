"""What one chat template writes around answers, learned from renders of small conversations."""

from collections.abc import Sequence

from jinja2 import nodes

from bridgepack.data.tokenizers.probe import render_chat
from bridgepack.data.tokenizers.templates import ChatTemplate
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import ASSISTANT

#: Letters of a constant at which texts are cut; shorter ones are no markers.
_LEAST = 3
_QUESTION, _ANSWER = "Qoneq", "Qtwoq"


def constants_of(template: ChatTemplate) -> list[str]:
    """Return the texts that a template may look for in what turns say, the longest first."""
    constants = {node.value.strip() for node in template.tree().find_all(nodes.Const) if isinstance(node.value, str)}
    return sorted((text for text in constants if len(text) >= _LEAST), key=lambda text: (-len(text), text))


def chat_end_of(tokenizer: ChatTokenizer, ends: Sequence[str]) -> str:
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
