"""Planning: which sequence goes into which pack, from lengths alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.lengths import draw_lengths
from benchlib.settings import FIRST_FIT_DECREASING, FIRST_FIT_SHUFFLE
from benchlib.works import OURS, PEER, UPSTREAM, Contender, Work

PART = "plan"
#: Distribution of lengths, and runtime tokens of a pack.
_CASES = (("A", 4096), ("A", 8192), ("A", 32768), ("B", 32768), ("C", 4096), ("C", 8192))
_PEERS = (("seqpacker", "obfd"), ("seqpacker", "ffd"), ("lightbinpack", "obfd"))
_LARGEST = 10_000_000
#: Where the ratios are what is asked of planning.
_ASKED_FROM = 1_000_000


def plan_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield planning at every size; the largest, of one case, by bridgepack alone: it shows how time grows."""
    cases = [(count, *case) for count in options.plan_sizes for case in _CASES]
    for count, distribution, size in cases + ([(_LARGEST, *_CASES[0])] if options.with_largest else []):
        given = {"lengths": _lengths(scratch, distribution, count), "size": size}
        contenders = (*(() if count == _LARGEST else _others(given)), *_ours(given, count))
        name = f"{count:,} lengths {distribution}, packs of {size:,}"
        yield Work(part=PART, name=name, unit="lengths", num_items=count, contenders=contenders)


def _lengths(scratch: Path, distribution: str, num_sequences: int) -> str:
    path = scratch / f"lengths-{distribution}-{num_sequences}.npy"
    if not path.exists():
        np.save(path, draw_lengths(distribution, num_sequences))
    return str(path)


def _others(given: dict[str, Any]) -> Iterator[Contender]:
    for algorithm in (FIRST_FIT_SHUFFLE, FIRST_FIT_DECREASING):
        yield Contender.of("plan_side:upstream", f"upstream {algorithm}", UPSTREAM, given, algorithm=algorithm)
    for package, algorithm in _PEERS:
        if find_spec(package) is not None:
            yield Contender.of(f"peer_side:{package}_plan", f"{package} {algorithm}", PEER, given, algorithm=algorithm)


def _ours(given: dict[str, Any], num_sequences: int) -> Iterator[Contender]:
    ours = Contender.of("plan_side:bridgepack", "bridgepack numpy", OURS, given)
    yield ours.asking(upstream=70, peer=1) if num_sequences == _ASKED_FROM else ours
