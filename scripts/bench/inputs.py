"""Chats, lengths and tokenised rows of the benchmarks; none of it is bridgepack's: every checkout gets the same."""

import itertools
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

_TEXT_SUFFIXES = {".md", ".rst", ".txt", ".py", ".pyi"}
_MAX_FILE_BYTES = 1 << 20
_MAX_TURN_PAIRS = 8
#: Lognormal lengths of a chat made of documentation, in characters: median and sigma; the shortest, the longest.
_MEDIAN_CHARACTERS, _SIGMA, _SHORTEST, _LONGEST = 2400, 1.0, 200, 60_000
#: Distinct tokens; more are these over again, far beyond what compression looks back at.
_POOL_TOKENS = 8 << 20
_ROWS_AT_ONCE = 4096


def write_chats(path: Path, num_rows: int, gsm8k: Path | None, seed: int = 0) -> None:
    """Write chats as JSON Lines: GSM8K's questions, where they are given, and slices of installed texts in turn."""
    rng = random.Random(seed)
    problems = [json.loads(line) for line in gsm8k.read_text(encoding="utf-8").splitlines()] if gsm8k else []
    slices = _slices(rng)
    with path.open("w", encoding="utf-8") as stream:
        for index in range(num_rows):
            if index % 2 or not problems:
                turns = _turns_of(next(slices), rng)
            else:
                row = problems[(index // 2) % len(problems)]
                turns = [("user", row["question"]), ("assistant", row["answer"])]
            messages = [{"role": role, "content": content} for role, content in turns]
            stream.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def draw_lengths(distribution: str, num_sequences: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return runtime lengths; shape [num_sequences].

    A is chats: lognormal, median 350, up to 4,096, mean 562. B has long documents besides, up to 32,768, mean 1,896.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(350), 1, num_sequences)
    if distribution == "B":
        kind = rng.random(num_sequences)
        longer = rng.lognormal(np.log(3000), 0.7, num_sequences)
        longest = rng.lognormal(np.log(16000), 0.5, num_sequences)
        lengths = np.where(kind < 0.8, lengths, np.where(kind < 0.95, longer, longest))
    return np.clip(lengths, 8, {"A": 4096, "B": 32768}[distribution]).astype(np.int64)


def write_tokenised(path: Path, num_sequences: int, tokenizer: Path) -> None:
    """Write rows of real tokens with lengths A, two thirds of each trained: `input_ids`, `loss_mask` as Parquet."""
    stored = draw_lengths("A", num_sequences, seed=1) + 1
    pool, begin = _pool(tokenizer, int(stored.sum())), 0
    schema = pa.schema({"input_ids": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.int8())})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num_sequences, _ROWS_AT_ONCE):
            lengths = stored[first : first + _ROWS_AT_ONCE]
            offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
            ids = np.resize(np.roll(pool, -begin), offsets[-1])
            mask = np.concatenate([np.arange(length) >= length // 3 for length in lengths.tolist()]).astype(np.int8)
            columns = [pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)) for values in (ids, mask)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            begin = (begin + int(offsets[-1])) % len(pool)


def _pool(tokenizer: Path, num_tokens: int) -> npt.NDArray[np.int32]:
    encode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode_batch_fast
    found: list[int] = []
    texts = installed_texts()
    while len(found) < min(_POOL_TOKENS, num_tokens):
        for encoding in encode(list(itertools.islice(texts, 100)), add_special_tokens=False):
            found += encoding.ids
    return np.array(found[:_POOL_TOKENS], dtype=np.int32)


def installed_texts() -> Iterator[str]:
    """Yield the installed packages' documentation and code, again and again; what looks like a token is broken up."""
    folder = Path(sysconfig.get_paths()["purelib"])
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _TEXT_SUFFIXES and path.is_file())
    for path in itertools.cycle(paths):
        if path.stat().st_size <= _MAX_FILE_BYTES:
            yield path.read_text(encoding="utf-8", errors="ignore").replace("<|", "< |").replace("<｜", "< ｜")


def _slices(rng: random.Random) -> Iterator[str]:
    held, texts = "", installed_texts()
    while True:
        length = min(max(int(rng.lognormvariate(0, _SIGMA) * _MEDIAN_CHARACTERS), _SHORTEST), _LONGEST)
        while len(held) < length:
            held += next(texts)
        yield held[:length]
        held = held[length:]


def _turns_of(text: str, rng: random.Random) -> list[tuple[str, str]]:
    """Return turns cut at random, without white space around them, which upstream stops at."""
    cuts = [0, *sorted(rng.randrange(len(text)) for _ in range(2 * rng.randint(1, _MAX_TURN_PAIRS) - 1)), len(text)]
    parts = [text[start:stop].strip() or "Go on." for start, stop in itertools.pairwise(cuts)]
    return list(zip(itertools.cycle(("user", "assistant")), parts, strict=False))
