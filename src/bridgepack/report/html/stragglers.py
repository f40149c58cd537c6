"""How unevenly the data-parallel ranks of a step are loaded, by the attention work of the packs that each reads.

All ranks wait for the slowest one before the optimiser step, so a step takes as long as its most loaded rank.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import BridgepackError
from bridgepack.proof.runs import RunOptions, TracedRun
from bridgepack.records import TRAIN
from bridgepack.replay.order import FILLER, PackOrder

#: Most steps that are looked at, and most draws of a rank in all of them.
_NUM_STEPS, _NUM_DRAWS = 500, 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Stragglers:
    """The load of the most loaded rank over the mean of all ranks, of each of the first steps."""

    data_parallel_size: int
    global_batch_size: int
    ratios: npt.NDArray[np.float64]  #: at least 1; shape [num_steps]

    @property
    def mean(self) -> float:
        """Of all steps."""
        return float(self.ratios.mean())

    @property
    def worst(self) -> float:
        """Of all steps."""
        return float(self.ratios.max())


def stragglers_of(artifact: Artifact, pack_costs: npt.NDArray[np.float64]) -> Stragglers | str:
    """Return how uneven the steps of the artifact's own recipe are over its first epoch, or why that is not known."""
    try:
        order = TracedRun(artifact, RunOptions()).order(TRAIN)
        return _stragglers(order, pack_costs)
    except BridgepackError as error:
        return str(error)


def _stragglers(order: PackOrder, pack_costs: npt.NDArray[np.float64]) -> Stragglers | str:
    num_ranks, batch = order.topology.data_parallel_size, order.settings.global_batch_size
    if num_ranks == 1:
        return "the run has one data-parallel rank, which waits for no other"
    most = order.settings.num_steps or _NUM_STEPS
    num_steps = min(len(pack_costs) // batch, most, _NUM_STEPS, max(_NUM_DRAWS // num_ranks, 1))
    if not num_steps:
        return f"{len(pack_costs):,} packs fill no global batch of {batch:,}"
    costs = np.append(pack_costs, 0.0)  # FILLER, -1, trains nothing
    assert FILLER == -1
    loads = np.array(
        [[costs[order.packs_at(step, rank)].sum() for rank in range(num_ranks)] for step in range(1, num_steps + 1)]
    )
    ratios = loads.max(axis=1) / np.maximum(loads.mean(axis=1), 1)
    return Stragglers(data_parallel_size=num_ranks, global_batch_size=batch, ratios=ratios)
