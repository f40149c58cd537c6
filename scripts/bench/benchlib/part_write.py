"""Assembling packed rows from tokenised sequences and writing them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.token_inputs import token_pool, write_sequences
from benchlib.works import FLOOR, OURS, PEER, UPSTREAM, Contender, Work

PART = "write"
_BILLION = 1_780_000  # sequences of a billion tokens
_ASKED_FROM_TOKENS = 10**8


def write_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield writing at every size; a billion tokens once and by bridgepack alone, to see that memory stays the same."""
    for num_sequences in options.write_sizes:
        yield _work(num_sequences, options, scratch, with_others=True)
    if options.billion:
        work = _work(_BILLION, options, scratch, with_others=False)
        yield replace(work, contenders=tuple(replace(one, most_repeats=1) for one in work.contenders))


def _work(num_sequences: int, options: argparse.Namespace, scratch: Path, *, with_others: bool) -> Work:
    folder = scratch / f"sequences-{num_sequences}"
    write_sequences(token_pool(options, scratch), num_sequences, folder)
    num_tokens = int(np.load(folder / "lengths.npy").sum())
    given = {"folder": str(folder), "output": str(scratch / "written")}
    others = _others(given, num_tokens) if with_others else ()
    return Work(
        part=PART,
        name=f"{num_sequences:,} sequences, {num_tokens / 1e6:,.0f}M tokens, packs of 4,096",
        unit="tokens",
        num_items=num_tokens,
        contenders=(*others, *_ours(given, num_tokens, options.workers)),
    )


def _others(given: dict[str, Any], num_tokens: int) -> Iterator[Contender]:
    for kind in ("tensors", "lists"):
        yield Contender.of("write_upstream:upstream", f"upstream, {kind} in", UPSTREAM, given, kind=kind)
    if find_spec("trl") is not None:
        yield Contender.of("peer_side:trl_pack", "TRL bfd, no file", PEER, given)
    yield Contender.of("raw_side:write_rows", "write + fsync int32, int8", FLOOR, given, num_tokens=num_tokens)


def _ours(given: dict[str, Any], num_tokens: int, workers: int) -> Iterator[Contender]:
    for count in sorted({1, workers}):
        ours = Contender.of("write_side:bridgepack", f"bridgepack, {count} at once", OURS, given, num_workers=count)
        is_asked = count > 1 and num_tokens > _ASKED_FROM_TOKENS
        yield ours.asking(upstream=14, floor=1 / 3) if is_asked else ours
