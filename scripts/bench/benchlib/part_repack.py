"""Packing anew from the token store, against building anew."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchlib.inputs import chats_file
from benchlib.works import OURS, PEER, Contender, Work

PART = "repack"


def repack_works(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield repacking an artifact for other sizes, and the same artifact built from the chats."""
    for num_rows in options.build_sizes:
        given = {
            "data": str(chats_file(options, scratch, num_rows)),
            "tokenizer": str(options.tokenizer),
            "output": str(scratch / "repack"),
            "num_workers": options.workers,
        }
        builds = [
            Contender.of("repack_side:build", f"bridgepack build instead, {engine}", PEER, given, engine=engine)
            for engine in ("auto", "tokenizers")
        ]
        repack = Contender.of("repack_side:repack", "bridgepack repack", OURS, given)
        contenders = (*builds, repack.asking(peer=10))
        name = f"{num_rows:,} chats, packs of 32,768, context parallel 4"
        yield Work(part=PART, name=name, unit="chats", num_items=num_rows, contenders=contenders)
