"""What the host would make of the same sequences if it packed them at run time: the packs of each step, and their time.

Megatron-Bridge packs online from 0.7 on. A step takes a fixed number of sequences, and its packs are made from them as
they come, so nothing is known before the run: neither which row is in which pack, nor how many packs a step has.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.balance import straggler_ratios
from bridgepack.geometry import IntArray
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.estimate import Arithmetic, Work
from bridgepack.planning.lengths import PackedLengths

#: Steps that are simulated at most.
_MAX_STEPS = 24
_UNITS = 1 << 20
#: Megatron-core's names of the two ways.
DP_BALANCED, DYNAMIC_CONTEXT = "dp_balanced", "dynamic_context_parallel"
#: Returns the groups of sequences that run without a barrier, of each the sequences of every rank, by their index.
type Grouping = Callable[[Sequence[int], int, int], list[list[list[int]]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class OnlinePacking:
    """Packing at run time with the layout of a candidate; seconds and tokens per second are estimates."""

    scheduler: str  #: `dp_balanced` or `dynamic_context_parallel`
    max_seqlen_per_dp_cp_rank: int  #: runtime tokens that a rank takes at a time
    sequences_per_step: int
    packs_per_step: float  #: mean; of dynamic context parallelism, groups times data-parallel ranks
    fill_fraction: float  #: tokens without alignment padding / capacity of the packs (0-1)
    padding_fraction: float  #: alignment padding / capacity of the packs (0-1)
    straggler_ratio: float  #: as of `Waiting`
    step_s: float  #: seconds of an optimiser step
    tokens_per_s: float  #: runtime tokens without padding per second and GPU


def packs_in_order(lengths: Sequence[int], *, capacity: int, multiple: int) -> list[list[int]]:
    """Return the packs that megatron-core's `dp_balanced` makes of a step's sequences, as indices into `lengths`.

    A pack takes the next sequences until one does not fit. Then single sequences are taken from the last packs, never
    from the first, until the number of packs is a multiple. A sequence longer than the capacity is a pack of its own.

    Example: lengths 4 4 4 1 1, capacity 6, multiple 2 -> [0] [1] [2 3] [4].

    Args:
        lengths: runtime tokens of each sequence, with alignment padding.
        capacity: runtime tokens of a pack.
        multiple: data-parallel ranks, times the micro batches of an interleaved round.

    Raises:
        ValueError: the packs after the first have too few sequences to take; the host stops.

    Source: Megatron-LM cebc2592 (#6684), core/datasets/data_schedule.py (DpBalancedScheduler).
    """
    packs: list[list[int]] = [[]]
    num_tokens = 0
    for index, length in enumerate(lengths):
        if packs[-1] and num_tokens + length > capacity:
            packs.append([])
            num_tokens = 0
        packs[-1].append(index)
        num_tokens += length
    num_packs = -(-len(packs) // multiple) * multiple
    last = len(packs) - 1
    while len(packs) < num_packs:
        if last <= 0:
            raise ValueError(f"{len(lengths)} sequences do not make {num_packs} packs")
        if len(packs[last]) > 1:
            packs.append([packs[last].pop()])
        else:
            last -= 1
    return packs


def packed_online(
    candidate: Candidate, packs: PackedLengths, arithmetic: Arithmetic, *, seed: int
) -> OnlinePacking | None:
    """Return what `dp_balanced` makes of a candidate's sequences; None if a step has too few of them.

    A step takes as many sequences as the candidate's packs hold on average, in a shuffled order, and packs are as long.

    Args:
        candidate: pack size and layout.
        packs: the packs of that size, for the lengths of their sequences.
        arithmetic: of the layout.
        seed: of the order.
    """
    layout, size = candidate.layout, candidate.packed_sequence_size
    multiple = layout.data * (layout.pipeline if layout.virtual > 1 else 1)
    steps = list(_steps(packs, candidate.global_batch_size, seed))
    num_packs, seconds, ratios = 0, 0.0, []
    for lengths in steps:
        try:
            step_packs = packs_in_order(lengths.tolist(), capacity=size, multiple=multiple)
        except ValueError:
            return None
        work = Work.from_packs(
            _packed_like(packs, [lengths[pack] for pack in step_packs]), arithmetic.cost, layout.context
        )
        costs = arithmetic.packs_s(work)
        ratio = _ratio(costs.reshape(-1, layout.data).T, layout.pipeline, has_experts=layout.expert > 1)
        num_micro = len(step_packs) // layout.data
        busy_s = arithmetic.step_s(float(costs.mean()), num_micro, arithmetic.imbalance(work.mean))
        seconds += busy_s * max(ratio, 1.0)
        ratios.append(ratio)
        num_packs += len(step_packs)
    per_step = num_packs / len(steps)
    return _result(
        candidate, packs, steps, DP_BALANCED, packs_per_step=per_step, seconds=seconds, ratio=float(np.mean(ratios))
    )


def grouped_online(
    candidate: Candidate, packs: PackedLengths, arithmetic: Arithmetic, *, seed: int, grouping: Grouping
) -> OnlinePacking:
    """Return what dynamic context parallelism makes of a candidate's sequences.

    A sequence is shared by as many ranks as it needs; ranks meet at the end of each group of sequences.

    Args:
        candidate: pack size and layout.
        packs: the packs of that size, for the lengths of their sequences.
        arithmetic: of the layout with every context rank as a data-parallel rank.
        seed: of the order.
        grouping: megatron-core's own scheduler.
    """
    layout = candidate.layout
    num_ranks, longest = layout.data * layout.context, candidate.packed_sequence_size // layout.context
    steps = list(_steps(packs, candidate.global_batch_size, seed))
    num_groups, seconds, exposed_s, even = 0, 0.0, 0.0, 0.0
    for lengths in steps:
        work = Work.from_packs(
            _packed_like(packs, [lengths[index : index + 1] for index in range(len(lengths))]), arithmetic.cost
        )
        costs = arithmetic.packs_s(work)
        groups = grouping(lengths.tolist(), longest, num_ranks)
        sharing = np.zeros(len(lengths))
        for group in groups:
            for index in (index for rank in group for index in rank):
                sharing[index] += 1
        busy_s = sum(max(sum(costs[index] / sharing[index] for index in rank) for rank in group) for group in groups)
        seconds += busy_s
        exposed_s += arithmetic.exposed_s(busy_s / len(groups))
        even += float(costs.sum()) / num_ranks
        num_groups += len(groups)
    return _result(
        candidate,
        packs,
        steps,
        DYNAMIC_CONTEXT,
        packs_per_step=num_groups / len(steps) * layout.data,
        seconds=seconds + exposed_s,
        ratio=seconds / even,
    )


def _result(
    candidate: Candidate,
    packs: PackedLengths,
    steps: Sequence[IntArray],
    scheduler: str,
    *,
    packs_per_step: float,
    seconds: float,
    ratio: float,
) -> OnlinePacking:
    layout, size = candidate.layout, candidate.packed_sequence_size
    num_aligned_tokens = sum(int(lengths.sum()) for lengths in steps)
    share = packs.num_tokens / sum(int(pack.sum()) for pack in packs.packs)  # of tokens that are no alignment padding
    room = packs_per_step * len(steps) * size
    return OnlinePacking(
        scheduler=scheduler,
        max_seqlen_per_dp_cp_rank=size // layout.context,
        sequences_per_step=len(steps[0]),
        packs_per_step=packs_per_step,
        fill_fraction=num_aligned_tokens * share / room,
        padding_fraction=num_aligned_tokens * (1 - share) / room,
        straggler_ratio=ratio,
        step_s=seconds / len(steps),
        tokens_per_s=num_aligned_tokens * share / seconds / layout.num_gpus,
    )


def _steps(packs: PackedLengths, batch: int, seed: int) -> Iterator[IntArray]:
    """Yield the aligned lengths of each step's sequences; where there are too few for one step, they are repeated."""
    lengths = np.concatenate(packs.packs)
    per_step = max(round(batch * len(lengths) / len(packs.packs)), 1)
    num_steps = max(min(len(lengths) // per_step, _MAX_STEPS), 1)
    seeded_lengths = np.random.default_rng(seed).permutation(lengths)
    yield from np.resize(seeded_lengths, (num_steps, per_step))


def _packed_like(packs: PackedLengths, lengths_of_packs: Sequence[IntArray]) -> PackedLengths:
    return replace(packs, packs=tuple(lengths_of_packs))


def _ratio(costs: npt.NDArray[np.float64], stages: int, *, has_experts: bool) -> float:
    """Return the time of a step over that of mean packs; `costs` have shape [ranks, packs]."""
    units = np.rint(costs / costs.mean() * _UNITS).astype(np.int64)
    slots = np.arange(units.size).reshape(1, *units.shape)
    return float(straggler_ratios(units.ravel(), slots, num_stages=stages, has_experts=has_experts)[0])
