"""The chats and the tokenizer of a run, where none are given."""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchlib import BenchmarkError
from benchlib.real_chats import iter_chats
from bridgepack.examples import iter_texts, train_chatml_tokenizer

#: Chats that a small tokenizer is trained on.
_TRAINING_CHATS = 2000


def prepare_inputs(options: argparse.Namespace, scratch: Path) -> None:
    """Put a tokenizer into the options where there is none: a small one, trained on the chats."""
    if options.tokenizer is None:
        texts = scratch / "texts.jsonl"
        texts.write_text("".join(islice(_chats(options), _TRAINING_CHATS)), encoding="utf-8")
        options.tokenizer = train_chatml_tokenizer(scratch / "tokenizer", iter_texts(texts))


def chats_file(options: argparse.Namespace, scratch: Path, num_rows: int) -> Path:
    """Return a file with so many chats; made once.

    Raises:
        BenchmarkError: when there are not as many; the same ones again would flatter whoever remembers them.
    """
    path = scratch / f"chats-{num_rows}.jsonl"
    if not path.exists():
        with path.open("w", encoding="utf-8") as stream:
            num_written = sum(1 for line in islice(_chats(options), num_rows) if stream.write(line))
        if num_written < num_rows:
            raise BenchmarkError(f"--data has {num_written:,} chats; {num_rows:,} are needed. Choose smaller sizes.")
    return path


def _chats(options: argparse.Namespace) -> Iterator[str]:
    if options.data is not None:
        with options.data.open(encoding="utf-8") as stream:
            yield from (line for line in stream if line.strip())
        return
    texts = options.texts or Path(sysconfig.get_paths()["purelib"])
    for messages in iter_chats(1 << 62, options.gsm8k, texts, seed=0):
        yield json.dumps({"messages": messages}, ensure_ascii=False) + "\n"
