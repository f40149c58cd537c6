"""The command line of the benchmark of builds."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options; paths are absolute."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        prog="build_vs_upstream",
        description="Rows per second and peak memory of `bridgepack build` against Megatron-Bridge's own preparation.",
    )
    add = parser.add_argument
    add("--rows", type=_positive, nargs="+", default=[1000, 5000], help="sizes (default: 1000 5000)")
    add("--repeats", type=_positive, default=3, help="measurements of each build (default: 3)")
    add("--data", type=_path, help="JSON Lines of chats, or of question and answer (default: made from docstrings)")
    add("--tokenizer", type=_path, help="its folder (default: a small one, trained on the chats)")
    add("--output", type=_path, default=_path("artifacts/bench"), help="gets the .md and .json (artifacts/bench)")
    add("--workers", type=_positive, default=cores, help="of bridgepack, at most (default: the cores)")
    add("--upstream-workers", type=_positive, nargs="*", default=[1, 2], help="one build for each (default: 1 2)")
    add("--limit", type=float, default=3600.0, help="seconds after which a build is ended (default: 3600)")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options as plain values that name no folder of the machine."""
    names = {
        "data": options.data.name if options.data else "docstrings of Python's standard library",
        "tokenizer": options.tokenizer.name if options.tokenizer else "trained on the data",
    }
    return {name: value for name, value in vars(options).items() if name != "output"} | names


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}; it must be 1 or more")
    return value


def _path(text: str) -> Path:
    return Path(text).absolute()
