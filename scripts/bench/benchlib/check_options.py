"""The command line of the benchmark of checks."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def parse_check(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options; paths are absolute."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        prog="check_speed",
        description="Speed of `bridgepack check` against reading the same artifact, which is made in $TMPDIR: about 7 "
        "bytes a token. A million rows: --rows 1000000, with --packed-sequence-size 512 where 30 GB are too much.",
    )
    add = parser.add_argument
    add("--rows", type=_positive, nargs="+", default=[20_000], help="sizes (default: 20000)")
    add("--packed-sequence-size", type=_positive, default=4096, help="runtime tokens of a row (default: 4096)")
    add("--workers", type=_positive, nargs="+", default=sorted({1, cores}), help="processes (default: 1 and the cores)")
    add("--repeats", type=_positive, default=3, help="measurements of each (default: 3)")
    add("--output", type=_path, default=_path("artifacts/bench"), help="gets the .md and .json (artifacts/bench)")
    add("--limit", type=float, default=3600.0, help="seconds after which a measurement is ended (default: 3600)")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}; it must be 1 or more")
    return value


def _path(text: str) -> Path:
    return Path(text).absolute()
