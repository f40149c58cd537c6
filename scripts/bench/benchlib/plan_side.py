"""Measures planning: upstream's algorithms as they are in its wheel, and ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchlib.side import timed


def upstream(lengths: str, size: int, algorithm: str) -> dict[str, Any]:
    """Return what packing the list of lengths takes, without the histogram before and dealing sequences out after."""
    from benchlib.upstream_modules import packing_algorithms

    algorithms, sequence_lengths = packing_algorithms(), np.load(lengths).tolist()
    np.random.seed(1234)
    found: dict[str, Any] = {}
    with timed(found):
        packs = getattr(algorithms, algorithm)(sequence_lengths, size)
    return {**found, "num_packs": len(packs)}


def bridgepack(lengths: str, size: int) -> dict[str, Any]:
    """Return what a plan takes, from lengths to which sequence lies in which pack; loading code is measured apart."""
    runtime_lengths = np.load(lengths)
    found: dict[str, Any] = {}
    with timed(found, "start_"):
        from bridgepack.data.packing.plan import plan_packs

        plan_packs(runtime_lengths[:10], packed_sequence_size=size)
    with timed(found):
        plan = plan_packs(runtime_lengths, packed_sequence_size=size)
    filled = runtime_lengths[plan.sequence_order]
    assert int(np.add.reduceat(filled, plan.pack_offsets[:-1]).max()) <= size
    assert np.array_equal(np.sort(plan.sequence_order), np.arange(len(runtime_lengths)))
    return {**found, "num_packs": plan.num_packs, "start_s": found["start_seconds"]}
