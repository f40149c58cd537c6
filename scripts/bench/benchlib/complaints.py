"""What is wrong beyond time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchlib.works import OURS, UPSTREAM


def complaints_of(taken: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what is wrong: bridgepack has other results than upstream, or more packs."""
    digests = {one["digest"] for one in taken.values() if "digest" in one}
    files = {one["files_digest"] for one in taken.values() if "files_digest" in one and one["role"] != UPSTREAM}
    complaints = ["they gave different sequences"] if len(digests) > 1 else []
    complaints += ["bridgepack wrote different bytes"] if len(files) > 1 else []
    packs = {name: one["num_packs"] for name, one in taken.items() if "num_packs" in one}
    fewest = min((packs[name] for name in packs if taken[name]["role"] == UPSTREAM), default=None)
    more = [name for name in packs if taken[name]["role"] == OURS and fewest is not None and packs[name] > fewest]
    return complaints + [f"{name}: {packs[name]} packs, upstream {fewest}" for name in more]
