"""Rows for families that show an answer otherwise once the conversation goes on, and what a server would send."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]


def said(role: str, content: str, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def call(query: str, thought: str = "") -> Message:
    function = {"name": "lookup", "arguments": {"query": query}}
    thoughts = {"reasoning_content": thought} if thought else {}
    return said("assistant", "", tool_calls=[{"type": "function", "function": function}], **thoughts)


#: Two answers, each with a thought.
TWO_THOUGHTS = [
    said("user", "one"),
    said("assistant", "first", reasoning_content="think of one"),
    said("user", "two"),
    said("assistant", "second", reasoning_content="think of two"),
]
#: Two calls and an answer in one exchange, then another exchange, then a question without an answer.
AGENT = [
    said("system", "answer in one line"),
    said("user", "ask"),
    call("words", "think of words"),
    said("tool", "ten"),
    call("limit", "think of a limit"),
    said("tool", "two"),
    said("assistant", "twelve", reasoning_content="ten and two"),
    said("user", "and then"),
    said("assistant", "thirty", reasoning_content="the rest"),
    said("user", "thank you"),
]
PLAIN = [said("user", "one"), said("assistant", "first"), said("user", "two"), said("assistant", "second")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a server sends for the turns before an answer, and what the model should write then; ids."""

    context: list[int]
    answer: list[int]


class Server:
    """Renders as a server does: transformers' own chat template and tokenizer."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def served(self, messages: Sequence[Message], answer: int, tools: Any = None) -> Served:
        """Return what is served for one answer, in tokens as a server makes them: of the whole text."""
        before = self._text(messages[:answer], tools, add_generation_prompt=True)
        whole = self._text(messages[: answer + 1], tools)
        assert whole.startswith(before), "the prompt must not go on after the header"
        context = self._ids(before)
        return Served(context=context, answer=self._ids(whole)[len(context) :])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def _text(self, messages: Sequence[Message], tools: Any, **options: Any) -> str:
        return str(self._tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, **options))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def answers_of(messages: Sequence[Message]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def spans_of(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each run of ones."""
    start = None
    for index, bit in enumerate([*mask, 0]):
        if bit and start is None:
            start = index
        elif not bit and start is not None:
            yield start, index
            start = None


def write_rows(path: Path, conversations: Sequence[Sequence[Message]], **columns: Any) -> Path:
    rows: list[Mapping[str, Any]] = [{"messages": list(messages), **columns} for messages in conversations]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
