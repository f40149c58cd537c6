"""The chats and the tokenizer that both sides are given."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchlib import BenchmarkError
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations


def read_chats(data: Path | None, folder: Path) -> list[str]:
    """Return one JSON line per chat: of a JSON Lines file, or made of this Python's docstrings.

    Rows with `question` and `answer` (GSM8K) become a user turn and an assistant turn; other rows stay as they are.

    Raises:
        BenchmarkError: when the file cannot be read or has no rows.
    """
    source = folder / "examples.jsonl" if data is None else data
    if data is None:
        write_docstring_conversations(source)
    try:
        with source.open(encoding="utf-8") as file:
            chats = [_as_chat(line) for line in file if line.strip()]
    except (OSError, ValueError, AttributeError) as error:
        raise BenchmarkError(f"--data is {str(source)!r}: {error}. Give a JSON Lines file of chats.") from None
    if not chats:
        raise BenchmarkError(f"--data is {str(source)!r}; it has no rows. Give a JSON Lines file of chats.")
    return chats


def write_chats(chats: list[str], num_rows: int, path: Path) -> int:
    """Write the first `num_rows` chats, over and over where there are fewer, and return how many are distinct."""
    path.write_text("".join(islice(cycle(chats), num_rows)), encoding="utf-8")
    return min(num_rows, len(chats))


def train_tokenizer(chats: list[str], folder: Path) -> Path:
    """Return the folder of a small tokenizer with a ChatML template, trained on the chats."""
    texts = folder / "tokenizer.jsonl"
    texts.write_text("".join(chats), encoding="utf-8")
    return train_chatml_tokenizer(folder / "tokenizer", iter_texts(texts))


def _as_chat(line: str) -> str:
    row: dict[str, Any] = json.loads(line)
    if "messages" not in row and row.keys() >= {"question", "answer"}:
        turns = {"user": row["question"], "assistant": row["answer"]}
        row = {"messages": [{"role": role, "content": content} for role, content in turns.items()]}
    return json.dumps(row, ensure_ascii=False) + "\n"
