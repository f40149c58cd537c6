#!/usr/bin/env python3
"""Prints how long the slowest rank makes a step, unbalanced and balanced, and how long balancing takes.

The lengths: 93 % chats around 600 tokens, 6 % long sequences around 8,000, 1 % of half a pack to a whole one. A token
costs as much as 51,000 pairs of tokens in attention, as in a dense model of 8 billion parameters.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from bridgepack.data.packing.balance import balance_plan, balanced_order, pack_costs, slots_of, straggler_ratios
from bridgepack.data.packing.plan import plan_packs
from bridgepack.geometry import IntArray
from bridgepack.records import BalanceRecord, PackPlan

RUN = BalanceRecord(
    kind="within_batch",
    window_batches=1,
    seed=1234,
    token_cost=51_000,
    windows=(),
    matches_micro_batches=False,
    version="0.6.2",
    loader="batch",
    loader_seed=1234,
    data_sharding=True,
    data_parallel_size=32,
    global_batch_size=128,
)
#: Packs of a step, data-parallel ranks, pipeline stages.
RUNS = ((32, 32, 1), (128, 32, 1), (128, 8, 4), (256, 16, 8))


def mixture(size: int, num_sequences: int) -> IntArray:
    """Return runtime lengths of the mixture, for packs of a size; shape [num_sequences], int64."""
    rng = np.random.default_rng(0)
    kind = rng.random(num_sequences)
    chats, long = (np.exp(rng.normal(np.log(middle), 0.9, num_sequences)) for middle in (600, 8000))
    whole = rng.integers(size // 2, size + 1, num_sequences)
    found = np.where(kind < 0.93, chats, np.where(kind < 0.99, long, whole))
    return np.clip(found.astype(np.int64), 8, size)


def costs_of(plan: PackPlan, lengths: IntArray) -> IntArray:
    """Return the cost of each pack, in the order of the plan."""
    size, ordered = plan.packed_sequence_size, lengths[plan.sequence_order]
    return pack_costs(ordered, plan.pack_offsets, token_cost=RUN.token_cost, packed_sequence_size=size, has_tail=True)


def main() -> None:
    """Print the table, and the time for a million packs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=1_000_000, metavar="N", help="to pack (default: a million)")
    parser.add_argument("--packs", type=int, default=1_000_000, metavar="N", help="to time (default: a million)")
    options = parser.parse_args()
    print(f"{'pack size':>9} {'batch':>5} {'ranks':>5} {'PP':>2} {'unbalanced':>10} {'within_batch':>12} {'across':>6}")
    for size in (32_768, 131_072):
        lengths = mixture(size, options.sequences)
        plan = plan_packs(lengths, packed_sequence_size=size)
        for batch, ranks, stages in RUNS:
            rises = {"matches_micro_batches": stages > 1, "begins_cheap": stages > 1}
            run = replace(RUN, global_batch_size=batch, data_parallel_size=ranks, **rises)
            plans = [
                plan,
                *(balance_plan(plan, lengths, replace(run, window_batches=n), has_tail=True) for n in (1, 16)),
            ]
            slots = slots_of(run, plan.num_packs)
            ratios = [straggler_ratios(costs_of(item, lengths), slots, num_stages=stages).mean() for item in plans]
            shown = f"{ratios[0]:>10.3f} {ratios[1]:>12.3f} {ratios[2]:>6.3f}"
            print(f"{size:>9,} {batch:>5} {ranks:>5} {stages:>2} {shown}")
    costs = np.random.default_rng(0).choice(costs_of(plan, lengths), options.packs)
    start = time.perf_counter()
    slots = slots_of(RUN, options.packs)
    replayed = time.perf_counter() - start
    for window in (1, 16):
        start = time.perf_counter()
        balanced_order(costs, slots, window_batches=window)
        took = time.perf_counter() - start + replayed
        print(
            f"{options.packs:,} packs, window of {window}: {took:.2f} s, of which {replayed:.2f} s the loader's order"
        )


if __name__ == "__main__":
    main()
