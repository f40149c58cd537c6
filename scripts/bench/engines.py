#!/usr/bin/env python3
"""Compares the fast engine with `tokenizers`, for tokenizers of yours: equal ids, speed, loading, memory.

Each measurement is a fresh process with one thread that sees every text once; times are CPU seconds. The exit code is 1
if the engine, guarded as in a build, gives other ids for a text.
"""

import argparse
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENGINES = ("tokenizers", "fastokens")
_AT_ONCE, _CHARACTERS = 1000, 600
#: First and last code point of what hostile texts are made of: all scripts, marks, private and unassigned ones.
_BLOCKS = ((0x0, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x33FF), (0x3400, 0xD7FF), (0xE000, 0xFFFF))
_BLOCKS += ((0x10000, 0x1FFFF), (0x20000, 0x3FFFF), (0xE0000, 0x10FFFF), (0x1F300, 0x1FAFF), (0x1E00, 0x1EFF))
_PIECES = ("\u200d", "\ufe0f", "\u0301\u0316", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x00", "'S", "'ll")
_PIECES += ("ſ", "İ", "ß", "12345", "٣٤", "<|", "|>", "<s>", "[INST]", "▁", "Ġ", "<0x0A>")
_PIECES += ("가", "각", "क्षि", "👩‍👩‍👧", "🇩🇪")


def ordinary_texts(num_texts: int) -> list[str]:
    """Return slices of the installed packages' documentation and code."""
    from bench.inputs import installed_texts

    found, texts = [], installed_texts()
    while len(found) < num_texts:
        text = next(texts)
        found += [text[start : start + _CHARACTERS] for start in range(0, min(len(text), 20_000), _CHARACTERS)]
    return found[:num_texts]


def hostile_texts(num_texts: int, seed: int = 0) -> list[str]:
    """Return texts of random characters from a few blocks each, mixed with runs and with what engines disagree on."""
    rng, found = random.Random(seed), []
    for _ in range(num_texts):
        blocks, parts = rng.sample(_BLOCKS, 3), []
        for _ in range(rng.randint(1, 60)):
            kind = rng.random()
            if kind < 0.3:
                parts.append(rng.choice(_PIECES) * rng.choice((1, 1, 2, 7)))
            elif kind < 0.4:
                parts.append("".join(rng.choices("abcXYZ .,'!-", k=rng.randint(1, 12))))
            else:
                parts.append("".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(1, 6))))
        found.append("".join(parts))
    return found


def distinct_texts(num_texts: int, texts: Sequence[str], seed: int = 0) -> Iterator[list[str]]:
    """Yield batches of texts of which none comes twice: 12 words each, 4 of them seen in no other text."""
    rng = random.Random(seed)
    words = [text for text in " ".join(texts[:200]).split() if text.isalpha()]
    for first in range(0, num_texts, _AT_ONCE):
        yield [
            " ".join((*rng.choices(words, k=8), *(f"{rng.getrandbits(40):x}".translate(_LETTERS) for _ in range(4))))
            for _ in range(min(_AT_ONCE, num_texts - first))
        ]


_LETTERS = str.maketrans("0123456789", "ghijklmnop")


def measured(path: Path, name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return what one engine did with one tokenizer."""
    from tokenizers import Tokenizer

    from bridgepack.data.tokenizers.engines import (
        EngineError,
        load_engine,
        reference_engine,
        reference_where_unicode_differs,
    )

    num_ordinary, num_hostile, num_distinct = sizes
    backend = Tokenizer.from_file(str(path))
    content, reference = backend.to_str().encode(), reference_engine(backend)
    before, begin = _resident_mb(), time.process_time()
    try:
        is_reference = name == reference.name
        engine = reference_engine(Tokenizer.from_str(content.decode())) if is_reference else load_engine(content)
        engine.encode_flat(["a b"])
    except EngineError as error:
        return {"error": str(error)}
    found: dict[str, Any] = {"load_s": time.process_time() - begin, "loaded_mb": _resident_mb() - before}
    ordinary, hostile = ordinary_texts(num_ordinary), hostile_texts(num_hostile)
    found["tokens_per_cpu_s"], _ = _timed(engine.encode_flat, itertools.batched(ordinary, _AT_ONCE))
    if not is_reference:
        guarded = reference_where_unicode_differs(engine, reference)
        found |= {"unequal": _unequal(engine, reference, [*ordinary, *hostile])}
        found |= {"unequal_guarded": _unequal(guarded, reference, [*ordinary, *hostile])}
    found["distinct_tokens_per_cpu_s"], found["grown_mb"] = _timed(
        engine.encode_flat, distinct_texts(num_distinct, ordinary)
    )
    return found


def _timed(encode: Callable[[Sequence[str]], Any], batches: Iterable[Sequence[str]]) -> tuple[float, float]:
    """Return tokens per CPU second, without the time that making the batches takes, and MB that the process grew."""
    seconds, num_tokens, before = 0.0, 0, _resident_mb()
    for batch in batches:
        begin = time.process_time()
        num_tokens += len(encode(batch).input_ids)
        seconds += time.process_time() - begin
    gc.collect()
    return num_tokens / seconds, _resident_mb() - before


def _unequal(engine: Any, reference: Any, texts: Sequence[str]) -> int:
    num_unequal = 0
    for batch in itertools.batched(texts, _AT_ONCE):
        pairs = zip(engine.encode_flat(batch).split(), reference.encode_flat(batch).split(), strict=True)
        num_unequal += sum(list(one) != list(other) for one, other in pairs)
    return num_unequal


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(arguments: list[str]) -> int:
    """Measure every tokenizer with every engine, print a line of JSON for each, and return 1 if ids differ."""
    parser = argparse.ArgumentParser(prog="engines.py", description=__doc__)
    parser.add_argument("tokenizers", nargs="+", type=Path, metavar="FOLDER", help="each has a tokenizer.json")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES, help="default: both")
    parser.add_argument(
        "--sizes",
        nargs=3,
        type=int,
        default=[20_000, 3_000, 2_000_000],
        metavar="N",
        help="ordinary texts, hostile ones, and distinct ones for memory (default: 20000 3000 2000000)",
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measured(options.tokenizers[0] / "tokenizer.json", options.engines[0], options.sizes)))
        return 0
    is_wrong = False
    for folder, engine in itertools.product(options.tokenizers, options.engines):
        command = [sys.executable, __file__, str(folder), "--one", "--engines", engine, "--sizes"]
        environment = os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run([*command, *map(str, options.sizes)], env=environment, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)
        print(json.dumps({"tokenizer": folder.name, "engine": engine} | found), flush=True)
        is_wrong = is_wrong or found.get("unequal_guarded", 0) > 0
    return int(is_wrong)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main(sys.argv[1:]))
