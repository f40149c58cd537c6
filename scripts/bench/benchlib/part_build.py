"""Whole builds, from chats in JSON Lines to an artifact that is checked."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchlib.inputs import chats_file
from benchlib.works import OURS, UPSTREAM, Contender, Work

PART = "build"
#: Chats from which upstream with several workers never ends: it runs out of memory maps.
_UPSTREAM_SERIAL_FROM = 16_000
#: Measurements of upstream with one worker, which takes twice as long as with two, and half an hour above that size.
_SERIAL_REPEATS = 1
_ENGINES = ("auto", "tokenizers")


def build_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield builds at every size; upstream's only up to the size that was asked for."""
    for num_rows in options.build_sizes:
        given = {
            "data": str(chats_file(options, scratch, num_rows)),
            "tokenizer": str(options.tokenizer),
            "output": str(scratch / "build"),
        }
        contenders = [*_upstream(given, num_rows, options.upstream_rows), *_ours(given, num_rows, options.workers)]
        name = f"{num_rows:,} chats"
        yield Work(part=PART, name=name, unit="chats", num_items=num_rows, contenders=tuple(contenders))


def _upstream(given: dict[str, Any], num_rows: int, most_rows: int) -> Iterator[Contender]:
    if num_rows > most_rows:
        return
    is_long = num_rows >= _UPSTREAM_SERIAL_FROM
    for count in (1,) if is_long else (1, 2):
        name = f"upstream, {count} worker{'s' if count > 1 else ''}"
        contender = Contender.of("build_side:upstream", name, UPSTREAM, given, num_workers=count)
        yield replace(contender, most_repeats=_SERIAL_REPEATS) if count == 1 else contender


def _ours(given: dict[str, Any], num_rows: int, workers: int) -> Iterator[Contender]:
    fast = [engine for engine in ("gigatoken", "fastokens") if find_spec(engine) is not None]
    for engine in _ENGINES if fast else ("tokenizers",):
        name = f"bridgepack, {engine}"
        ours = Contender.of("build_side:bridgepack", name, OURS, given, engine=engine, num_workers=workers)
        yield ours.asking(upstream=80 if num_rows >= _UPSTREAM_SERIAL_FROM else 40)
