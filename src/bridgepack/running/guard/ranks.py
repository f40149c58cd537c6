"""Which rank this is, how many there are of each kind, and what all of them know."""

from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.records.guarded import GroupSizes, RankPlace


def place_and_sizes(model: Any) -> tuple[RankPlace, GroupSizes]:
    """Return this rank's place and the group sizes, from the model's process groups.

    Source: megatron/core/process_groups_config.py of 0.19.2.
    """
    import torch.distributed as dist

    groups = import_host("training.utils.pg_utils").get_pg_collection(model)
    groups_by_kind = {"data": groups.dp, "pipeline": groups.pp, "tensor": groups.tp, "context": groups.cp}
    place = RankPlace(rank=dist.get_rank(), **{name: group.rank() for name, group in groups_by_kind.items()})
    experts = getattr(groups, "expt_dp", None)
    sizes = {name: group.size() for name, group in groups_by_kind.items()}
    return place, GroupSizes(**sizes, expert_copies=1 if experts is None else experts.size())


def gather[T](value: T) -> tuple[T, ...]:
    """Return the values of all ranks, in rank order; a collective that every rank must call."""
    import torch.distributed as dist

    values: list[Any] = [value] * dist.get_world_size()
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return tuple(values)
