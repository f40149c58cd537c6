"""Real chats: GSM8K problems, and slices of the documentation and code of the installed packages, in turn."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

#: Suffixes of files whose text people wrote.
_TEXT_SUFFIXES = {".md", ".rst", ".txt", ".py", ".pyi"}
_MAX_FILE_BYTES = 1 << 20
_MAX_TURN_PAIRS = 8
#: Lognormal lengths of a chat made of documentation, in characters: median and sigma.
_MEDIAN_CHARACTERS, _SIGMA = 2400, 1.0
_SHORTEST, _LONGEST = 200, 60_000


def iter_texts(folder: Path) -> Iterator[str]:
    """Yield the text files below a folder in sorted order, again and again; control-token-like text is broken up."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _TEXT_SUFFIXES and path.is_file())
    for path in itertools.cycle(paths):
        if path.stat().st_size <= _MAX_FILE_BYTES:
            yield path.read_text(encoding="utf-8", errors="ignore").replace("<|", "< |").replace("<｜", "< ｜")


def iter_chats(num_rows: int, gsm8k: Path | None, folder: Path, seed: int) -> Iterator[list[dict[str, str]]]:
    """Yield chats: GSM8K questions, where they are given, and slices in turn."""
    rng = random.Random(seed)
    problems = [json.loads(line) for line in gsm8k.read_text(encoding="utf-8").splitlines()] if gsm8k else []
    slices = _slices(folder, rng)
    for index in range(num_rows):
        if index % 2 or not problems:
            yield _chat_of_slice(next(slices), rng)
        else:
            row = problems[(index // 2) % len(problems)]
            yield [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]


def _slices(folder: Path, rng: random.Random) -> Iterator[str]:
    """Yield consecutive slices of the texts, of the lengths of chats."""
    held, texts = "", iter_texts(folder)
    while True:
        length = min(max(int(rng.lognormvariate(0, _SIGMA) * _MEDIAN_CHARACTERS), _SHORTEST), _LONGEST)
        while len(held) < length:
            held += next(texts)
        yield held[:length]
        held = held[length:]


def _chat_of_slice(text: str, rng: random.Random) -> list[dict[str, str]]:
    """Return question and answer turns, cut at random and without white space around them, which upstream stops at."""
    cuts = [0, *sorted(rng.randrange(len(text)) for _ in range(2 * rng.randint(1, _MAX_TURN_PAIRS) - 1)), len(text)]
    roles = itertools.cycle(("user", "assistant"))
    parts = [text[start:stop].strip() or "Go on." for start, stop in itertools.pairwise(cuts)]
    return [{"role": role, "content": part} for role, part in zip(roles, parts, strict=False)]
