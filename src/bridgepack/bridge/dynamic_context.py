"""Asks megatron-core how it would spread the sequences of a step over ranks with dynamic context parallelism."""

from collections.abc import Sequence
from dataclasses import dataclass

from bridgepack.bridge.imports import import_by_name

_SCHEDULE = "megatron.core.pipeline_parallel.hybrid_cp_schedule"


@dataclass(frozen=True, slots=True)
class _Ranks:
    """What the scheduler asks of a process group."""

    count: int

    def size(self) -> int:
        return self.count


def dynamic_groups(lengths: Sequence[int], longest_per_rank: int, num_ranks: int) -> list[list[list[int]]]:
    """Return groups of sequences that run without a barrier; of each group the sequences of every rank, by index.

    Args:
        lengths: runtime tokens of each sequence, with alignment padding.
        longest_per_rank: `max_seqlen_per_dp_cp_rank`.
        num_ranks: data-parallel times context-parallel ranks.

    Raises:
        ConfigError: megatron-core cannot be imported.

    Source: megatron-core 0.19.2, pipeline_parallel/hybrid_cp_schedule.py (BalancedCPScheduler), which is called.
    """
    scheduler = import_by_name(_SCHEDULE).BalancedCPScheduler(longest_per_rank, _Ranks(num_ranks))
    _, groups = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
    return [[list(rank) for rank in group] for group in groups]
