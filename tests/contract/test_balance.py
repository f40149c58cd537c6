"""The host's own loader gives every rank the packs that the balance meant for it, at every step that it claims."""

import os
import random
from itertools import islice

import numpy as np
import pytest

from bridgepack.data.packing.balance import balanced_order, slots_of
from bridgepack.geometry import IntArray
from bridgepack.records import BalanceRecord
from tests.support.installed_host import host_release, host_version

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

NUM_RUNS = int(os.environ.get("BRIDGEPACK_BALANCE_CASES", "200"))


def _run(rng: random.Random) -> tuple[BalanceRecord, int, bool]:
    """Draw what packs are balanced for, their number, and whether the loader drops the last packs."""
    num_ranks = rng.choice((2, 3, 4, 8))
    global_batch_size = num_ranks * rng.choice((1, 2, 3, 4))
    window = rng.choice((1, 2, 5))
    record = BalanceRecord(
        kind="across_batches" if window > 1 else "within_batch",
        window_batches=window,
        seed=rng.randrange(2**32),
        token_cost=1,
        windows=(),
        matches_micro_batches=rng.random() < 0.3,
        begins_cheap=rng.random() < 0.3,
        version=host_version(),
        loader=rng.choice(("batch", "batch", "single", "cyclic")),
        loader_seed=rng.choice((0, 7, 1234, 2**32 - 1)),
        data_sharding=rng.random() < 0.5,
        data_parallel_size=num_ranks,
        global_batch_size=global_batch_size,
    )
    num_packs, drop_last = global_batch_size * rng.randint(1, 9) + rng.randrange(global_batch_size), rng.random() < 0.5
    is_refused = host_release().refuses_uneven_rest and record.loader == "single" and num_packs % num_ranks
    return record, num_packs, drop_last or bool(is_refused)


def _read(record: BalanceRecord, num_packs: int, rank: int, num_steps: int, *, drop_last: bool) -> IntArray:
    """Return the rows that the host's loader gives a rank in its first steps; [steps, packs]."""
    from megatron.bridge.data.samplers import build_pretraining_data_loader

    loader = build_pretraining_data_loader(
        range(num_packs),
        0,
        record.loader,
        1,
        0,
        record.data_sharding,
        collate_fn=list,
        pin_memory=False,
        data_parallel_rank=rank,
        data_parallel_size=record.data_parallel_size,
        global_batch_size=record.global_batch_size,
        drop_last=drop_last,
        seed=record.loader_seed,
    )
    packs_per_step = record.global_batch_size // record.data_parallel_size
    num_draws = num_steps * (1 if record.loader == "batch" else packs_per_step)
    return np.array(list(islice(loader, num_draws))).reshape(num_steps, packs_per_step)


def test_ranks_read_what_the_balance_meant_for_them() -> None:
    rng, num_steps_compared = random.Random(11), 0
    for _ in range(NUM_RUNS):
        record, num_packs, drop_last = _run(rng)
        slots = slots_of(record, num_packs)
        costs = np.array([rng.randint(1, 10**6) for _ in range(num_packs)])
        order = balanced_order(
            costs,
            slots,
            window_batches=record.window_batches,
            seed=record.seed,
            matches_micro_batches=record.matches_micro_batches,
            begins_cheap=record.begins_cheap,
        )

        ranks = range(record.data_parallel_size)
        read = np.stack([_read(record, num_packs, rank, len(slots), drop_last=drop_last) for rank in ranks], axis=1)

        np.testing.assert_array_equal(order[read], order[slots], str(record))
        least = num_packs // record.global_batch_size
        assert len(slots) >= least - (record.loader == "cyclic")
        if record.window_batches == 1:
            for step in range(len(slots)):
                assert sorted(order[read[step]].ravel()) == sorted(read[step].ravel())
        num_steps_compared += len(slots)
    assert num_steps_compared > 3 * NUM_RUNS
