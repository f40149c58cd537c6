"""Chats into ids and masks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchlib.inputs import chats_file
from benchlib.works import FLOOR, OURS, UPSTREAM, Contender, Metric, Work

PART = "tokenise"
#: Name -> how many times less CPU time a token shall take than upstream's.
_ENGINES = {"tokenizers": 10, "gigatoken": 100, "fastokens": 100}


def tokenise_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield tokenising with one process and one thread; the fast engines and upstream get the same chats."""
    for num_rows in options.tokenise_sizes:
        given = {"data": str(chats_file(options, scratch, num_rows)), "tokenizer": str(options.tokenizer)}
        contenders = [Contender.of("tokenise_upstream:upstream", "upstream", UPSTREAM, given)]
        contenders.append(Contender.of("tokenise_side:encode_only", "encode_batch_fast, no mask", FLOOR, given))
        for engine, asked in _ENGINES.items():
            if find_spec(engine) is not None:
                ours = Contender.of("tokenise_side:bridgepack", f"bridgepack, {engine}", OURS, given, engine=engine)
                contenders.append(ours.asking(upstream=asked))
        yield Work(
            part=PART,
            name=f"{num_rows:,} chats, ids and masks",
            unit="tokens",
            num_items=num_rows,
            contenders=tuple(contenders),
            metrics=(Metric(compared="cpu_s"),),
        )
