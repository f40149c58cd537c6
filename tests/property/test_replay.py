from collections import defaultdict
from random import Random

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from bridgepack.errors import ConfigError
from bridgepack.replay.order import FILLER, PackOrder
from bridgepack.replay.settings import ReplaySettings, Topology
from tests.support.examples import examples


@st.composite
def runs(draw: st.DrawFn, *, loader: str | None = None) -> ReplaySettings:
    """Draw a run of up to 40 packs on up to 6 data-parallel ranks."""
    data_parallel_size, micro_batch_size = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    return ReplaySettings(
        version="0.6.2",
        num_packs=draw(st.integers(1, 40)),
        topology=Topology(world_size=data_parallel_size),
        loader=loader or draw(st.sampled_from(("batch", "single", "cyclic"))),  # type: ignore[arg-type]
        micro_batch_size=micro_batch_size,
        global_batch_size=data_parallel_size * micro_batch_size * draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 2**32 - 1)),
        drop_last=draw(st.booleans()),
        data_sharding=draw(st.booleans()),
        max_samples=draw(st.none() | st.integers(2, 90)),
    )


def _steps(order: PackOrder, last_step: int) -> list[list[np.ndarray]]:
    """Return the packs of each rank at each step, up to where the host stops."""
    steps = []
    ranks = range(order.topology.data_parallel_size)
    try:
        for step in range(order.first_step, last_step + 1):
            steps.append([order.packs_at(step, rank) for rank in ranks])
    except ConfigError:
        pass
    return steps


@given(runs(), st.integers(1, 12), st.randoms(use_true_random=False))
@examples(0.5)
def test_steps_come_in_any_order_and_steps_of_is_inverse(run: ReplaySettings, last_step: int, random: Random) -> None:
    try:
        order = PackOrder(run)
    except ConfigError:
        return
    steps = _steps(order, last_step)
    assume(steps)
    fresh = PackOrder(run)
    for step, ranks in random.sample(list(enumerate(steps, order.first_step)), len(steps)):
        assert [fresh.packs_at(step, rank).tolist() for rank in range(len(ranks))] == [
            packs.tolist() for packs in ranks
        ]
    expected = defaultdict(set)
    for step, ranks in enumerate(steps, order.first_step):
        for rank, packs in enumerate(ranks):
            for place, pack in enumerate(packs.tolist()):
                row = order.filler_pack if pack == FILLER else pack
                expected[row].add((step, rank, *divmod(place, run.micro_batch_size), pack == FILLER))

    for pack in range(run.num_packs):
        sightings = list(order.steps_of(pack, last_step=len(steps)))
        found = [(s.step, s.data_parallel_rank, s.micro_batch, s.position, s.is_filler) for s in sightings]
        assert set(found) == expected[pack]
        assert len(found) == len(set(found))
        assert sightings == sorted(sightings)
