"""Runs the probe on versions of the host that lie beside the test environment, which forks a process for each."""

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.installed_host import host_version
from tests.support.processes import run_module

PROJECT = Path(__file__).parents[2]
INSTALLED = host_version()


def overlay(version: str) -> Path:
    """Return the folder of a version's packages, to be put in front of the test environment's own."""
    folder = Path(f"{sys.prefix}-older") / version
    assert folder.is_dir(), f"{folder} is missing: run `bash tests/environment/install_older {sys.prefix}`"
    return folder


def host_package(version: str) -> Path:
    """Return the folder of a version's megatron.bridge, be it installed or beside the test environment."""
    if version != INSTALLED:
        return overlay(version) / "megatron" / "bridge"
    return Path(next(iter(importlib.import_module("megatron.bridge").__path__)))


def locked_versions() -> list[str]:
    """Return the versions that tests/environment/older pins."""
    return sorted(path.stem for path in (PROJECT / "tests" / "environment" / "older").glob("*.txt"))


def ask(requests: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return version -> what the probe says there to what it is asked; `folder` is for files."""
    folders = {version: folder / version for version in requests}
    for version, request in requests.items():
        folders[version].mkdir(parents=True)
        (folders[version] / "request.json").write_text(json.dumps(request))
    run_module("tests.support.older_host_probe", *folders.values())
    return {version: json.loads((place / "answer.json").read_text()) for version, place in folders.items()}


def positions_on_rank(offsets: Sequence[int], num_tokens: int, *, context_parallel_size: int, rank: int) -> list[int]:
    """Return which tokens of a row TransformerEngine's slicing gives a context-parallel rank.

    Example: offsets [0, 8], 2 ranks -> rank 0 [0, 1, 6, 7], rank 1 [2, 3, 4, 5].

    Source: TransformerEngine 2.10 to 2.17, common/fused_attn/context_parallel.cu (thd_partition_indices_kernel):
    offsets are divided by the ranks, towards 0, and the sequence of a token is looked for by bisection.
    """
    shares = [int(offset / context_parallel_size) for offset in offsets]
    positions = []
    for token in range(num_tokens // context_parallel_size):
        sequence = _bisected(token, shares)
        half = (shares[sequence + 1] - shares[sequence]) // 2
        index = token - shares[sequence]
        chunk = rank if index < half else 2 * (context_parallel_size - 1) - rank
        positions.append(index + shares[sequence] * context_parallel_size + half * chunk)
    return positions


def _bisected(token: int, shares: Sequence[int]) -> int:
    left, right = 1, len(shares) - 1
    while left < right:
        middle = (left + right) // 2
        if shares[middle] <= token:
            left = middle + 1
        else:
            right = middle
    return left - 1


def zigzag(offsets: Sequence[int], *, context_parallel_size: int, rank: int) -> list[int]:
    """Return the tokens that belong on a rank: of each sequence chunk `rank` from the front and from the back.

    Offsets ascend, and none of them is -1; each sequence has twice as many chunks as there are ranks.
    """
    positions = []
    for start, end in pairwise(offsets):
        length = (end - start) // (2 * context_parallel_size)
        last = 2 * context_parallel_size - 1 - rank
        for chunk in (rank, last):
            positions += range(start + chunk * length, start + (chunk + 1) * length)
    return positions
