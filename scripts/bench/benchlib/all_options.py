"""The command line of all benchmarks."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PARTS = ("plan", "write", "read", "tokenise", "build", "repack")
_DESCRIPTION = (
    "Bridgepack against the real Megatron-Bridge and the peers that are installed, in one run: every measurement in a "
    "fresh process, all taking turns. With everything it takes some hours, most of them upstream's."
)


def parse_all(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options; paths are absolute."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="all", description=_DESCRIPTION)
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: everything)")
    add("--repeats", type=positive, default=5, help="measurements of each (default: 5)")
    add("--limit", type=float, default=3600.0, help="seconds after which a measurement is ended (default: 3600)")
    add("--plan-sizes", type=positive, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N", help="lengths")
    add("--with-largest", action="store_true", help="also plan ten million lengths, bridgepack alone")
    add("--write-sizes", type=positive, nargs="+", default=[20_000, 200_000], metavar="N", help="sequences")
    add("--billion", action="store_true", help="also write a billion tokens, bridgepack alone (needs 7 GB in $TMPDIR)")
    add("--read-tokens", type=positive, default=16_000_000, metavar="N", help="tokens of each file that is read")
    add("--tokenise-sizes", type=positive, nargs="+", default=[1_000], metavar="N", help="chats")
    add("--build-sizes", type=positive, nargs="+", default=[10_000, 100_000], metavar="N", help="chats")
    add("--upstream-rows", type=int, default=10_000, metavar="N", help="upstream builds no more chats (default: 10000)")
    add("--workers", type=positive, default=cores, help="processes of bridgepack (default: the cores)")
    add("--data", type=_path, help="JSON Lines of chats (default: made of the installed packages' texts)")
    add("--gsm8k", type=_path, help="GSM8K's train.jsonl, for every other chat of those that are made")
    add("--tokenizer", type=_path, help="its folder (default: a small one, trained on the chats)")
    add("--texts", type=_path, help="folder of the texts (default: this Python's site-packages)")
    add("--most-tokens", type=positive, default=8 << 20, metavar="N", help="distinct tokens to write and read")
    add("--output", type=_path, default=_path("artifacts/bench"), help="gets all.md and all.json (artifacts/bench)")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """Return a number of 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}; it must be 1 or more")
    return value


def _path(text: str) -> Path:
    return Path(text).absolute()
