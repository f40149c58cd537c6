"""Measures assembling and writing shards as a build does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.raw_side import fresh
from benchlib.settings import PACKED_SEQUENCE_SIZE
from benchlib.shard_plans import write_tasks
from benchlib.side import timed
from bridgepack.data.packing.plan import plan_packs
from bridgepack.data.stages.shard_tasks import write_planned_shard
from bridgepack.data.tasks import InThisProcess, result_of
from bridgepack.data.worker_process import PACKING, preload
from bridgepack.data.workers.pool import WorkerPool


def bridgepack(folder: str, output: str, num_workers: int) -> dict[str, Any]:
    """Return what it takes from a plan to shards that are synced to disk and hashed; planning is measured apart."""
    found: dict[str, Any] = {}
    stored = np.load(Path(folder) / "lengths.npy")
    with timed(found, "plan_"):
        plan = plan_packs(stored - 1, packed_sequence_size=PACKED_SEQUENCE_SIZE)
    with fresh(output) as target, _runner(num_workers) as runner:
        tasks = write_tasks(plan, stored, sorted(Path(folder).glob("*.tokens")), target)
        with timed(found):
            shards = [result_of(outcome) for outcome in runner.run(write_planned_shard, tasks)]
        num_bytes = sum(shard.record.num_bytes for shard in shards)
    return {**found, "num_packs": plan.num_packs, "num_bytes": num_bytes, "num_shards": len(shards)}


@contextmanager
def _runner(num_workers: int) -> Iterator[Any]:
    if num_workers == 1:
        yield InThisProcess()
        return
    preload(PACKING)
    with WorkerPool(num_workers) as pool:
        list(pool.run(_started, range(num_workers)))  # loading code and starting processes is no part of writing
        yield pool


def _started(_: int, __: Any) -> None:
    pass
