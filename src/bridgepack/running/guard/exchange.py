"""Ranks tell each other what they saw: always a few numbers, and evidence once something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from bridgepack.records.guarded import GroupSizes, RankEvidence, RankFacts, RankPlace

_PLACE = tuple(field.name for field in fields(RankPlace))
_NUMBERS = tuple(field.name for field in fields(RankFacts) if field.name not in ("place", "evidence"))


def place_and_sizes(model: Any) -> tuple[RankPlace, GroupSizes]:
    """Return where this rank is, by the model's own process groups."""
    import torch.distributed as dist
    from megatron.bridge.training.utils.pg_utils import get_pg_collection

    groups = get_pg_collection(model)
    named = {"data": groups.dp, "pipeline": groups.pp, "tensor": groups.tp, "context": groups.cp}
    place = RankPlace(rank=dist.get_rank(), **{name: group.rank() for name, group in named.items()})
    return place, GroupSizes(**{name: group.size() for name, group in named.items()})


def this_rank() -> int:
    """Return which process this is, from 0."""
    import torch.distributed as dist

    return int(dist.get_rank())


def first_rank_without(*, holds: bool) -> int | None:
    """Return the first rank on which something does not hold; None where it holds on all. Every rank calls this."""
    import torch
    import torch.distributed as dist

    world_size = dist.get_world_size()
    first = world_size if holds else dist.get_rank()
    if world_size > 1:
        number = torch.tensor([first], device=_device_of_group())
        dist.all_reduce(number, op=dist.ReduceOp.MIN)
        first = int(number.item())
    return None if first == world_size else first


def exchanged(facts: RankFacts) -> tuple[RankFacts, ...]:
    """Return the numbers of all ranks, by rank; every rank has to call this. Evidence stays where it is."""
    import torch
    import torch.distributed as dist

    own = to_numbers(facts)
    if dist.get_world_size() == 1:
        return (replace(facts, evidence=None),)
    device = _device_of_group()
    gathered = [torch.zeros(len(own), dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor(own, dtype=torch.int64, device=device))
    return tuple(from_numbers(numbers) for numbers in torch.stack(gathered).tolist())


def exchanged_evidence(facts: Sequence[RankFacts], own: RankFacts) -> tuple[RankFacts, ...]:
    """Return the facts of all ranks with their evidence; every rank has to call this."""
    import torch.distributed as dist

    evidence: list[RankEvidence | None] = [own.evidence]
    if dist.get_world_size() > 1:
        evidence = [None] * dist.get_world_size()
        dist.all_gather_object(evidence, own.evidence)
    return tuple(replace(one, evidence=found) for one, found in zip(facts, evidence, strict=True))


def to_numbers(facts: RankFacts) -> list[int]:
    """Return facts as numbers of 64 bits."""
    return [
        *(getattr(facts.place, name) for name in _PLACE),
        *(getattr(facts, name) for name in _NUMBERS),
    ]


def from_numbers(numbers: Sequence[int]) -> RankFacts:
    """Return the facts that numbers stand for; the inverse of `to_numbers`, without evidence."""
    place, rest = numbers[: len(_PLACE)], numbers[len(_PLACE) :]
    named: dict[str, Any] = dict(zip(_NUMBERS, rest, strict=True))
    return RankFacts(place=RankPlace(**dict(zip(_PLACE, place, strict=True))), **named)


def _device_of_group() -> Any:
    """Return where tensors have to be for the group of all ranks: on the GPU for NCCL, else in memory."""
    import torch
    import torch.distributed as dist

    backend = str(dist.get_backend())
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else torch.device("cpu")
