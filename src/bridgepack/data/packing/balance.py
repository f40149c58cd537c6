"""Orders packs so that DP ranks wait little for each other, and measures how long they wait; pure functions.

*Slots* are the rows that a loader reads, shape [num_steps, num_ranks, packs per rank], int64: row `slots[s, r, m]` of
the split is micro batch `m` of rank `r` at step `s`. Costs are per pack, shape [num_packs], in any unit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.order import seeded_hash
from bridgepack.data.packing.pipeline import step_times
from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records import BalanceRecord, PackPlan
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import Loader, ReplaySettings, Topology

#: Maximum rounds in which ranks exchange packs; most steps need fewer than 10.
_ROUNDS = 16
#: Packs per rank above which dealing without exchanges is even enough.
_MOST_EXCHANGED = 64
#: The most expensive rank of a step may exceed the mean by the mean divided by this.
_CLOSE_ENOUGH = 1000
#: Packs that are dealt in memory at a time.
_CHUNK_PACKS = 1 << 17


def balance_plan(plan: PackPlan, runtime_lengths: IntArray, balance: BalanceRecord, *, has_tail: bool) -> PackPlan:
    """Return the plan with its packs in the balanced order; for the arguments see `plan_packs` and `pack_costs`.

    Raises:
        ConfigError: there are too few packs for one step.
    """
    costs = pack_costs(
        runtime_lengths[plan.sequence_order],
        plan.pack_offsets,
        token_cost=balance.token_cost,
        windows=balance.windows,
        packed_sequence_size=plan.packed_sequence_size,
        has_tail=has_tail,
    )
    order = balanced_order(
        costs,
        slots_of(balance, plan.num_packs),
        window_batches=balance.window_batches,
        seed=balance.seed,
        matches_micro_batches=balance.matches_micro_batches,
        begins_cheap=balance.begins_cheap,
    )
    return reorder(plan, order)


def slots_of(balance: BalanceRecord, num_packs: int) -> IntArray:
    """Return the slots that the record's loader reads in the first epoch over `num_packs` packs.

    Raises:
        ConfigError: there are too few packs for one step.
    """
    if num_packs < balance.global_batch_size:
        raise ConfigError(
            f"batch.global_batch_size is {balance.global_batch_size}; allowed with packing.balance: at most the number "
            f"of packs, {num_packs}. Lower it, or set packing.balance.kind to none.",
            field="batch.global_batch_size",
        )
    settings = ReplaySettings(
        version=balance.version,
        num_packs=num_packs,
        topology=Topology(world_size=balance.data_parallel_size),
        micro_batch_size=1,
        global_batch_size=balance.global_batch_size,
        loader=cast("Loader", balance.loader),
        seed=balance.loader_seed,
        data_sharding=balance.data_sharding,
    )
    return PackOrder(settings).first_pass()


def pack_costs(
    runtime_lengths: IntArray,
    pack_offsets: IntArray,
    *,
    token_cost: int,
    windows: Sequence[tuple[int, float]] = (),
    packed_sequence_size: int,
    has_tail: bool,
) -> IntArray:
    """Return the cost of every pack; shape [num_packs], int64.

    Every row costs the width that the host pads it to: `packed_sequence_size`, as `to_bridge` sets `pad_to_max_length`.

    `runtime_lengths` are physical, in the order of packs, shape [num_sequences]; `pack_offsets` have shape
    [num_packs + 1]. With `has_tail`, attention treats the empty end of a row as one more sequence, as with
    pad_seq_to_mult 1. For the others see `BalanceRecord`.

    Example: lengths [3 4 | 5], token_cost 10, size 8, has_tail -> [10 * 8 + 9 + 16 + 1, 10 * 8 + 25 + 9].

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn).
    """
    tails = packed_sequence_size - np.add.reduceat(runtime_lengths, pack_offsets[:-1])
    pairs = np.add.reduceat(_pairs(runtime_lengths, windows), pack_offsets[:-1])
    return token_cost * packed_sequence_size + pairs + _pairs(tails * has_tail, windows)


def _pairs(lengths: IntArray, windows: Sequence[tuple[int, float]]) -> IntArray:
    """Return the attention cost of each sequence, as integers, so that sums are the same on every machine."""
    pairs = lengths * lengths
    for window, share in windows:
        pairs -= np.rint(share * np.maximum(lengths - window, 0) ** 2).astype(np.int64)
    return pairs


def balanced_order(
    costs: IntArray,
    slots: IntArray,
    *,
    window_batches: int = 1,
    seed: int = 0,
    matches_micro_batches: bool = False,
    begins_cheap: bool = False,
) -> IntArray:
    """Return the pack to put in each row so that the ranks of a step cost the same; shape [num_packs], int64.

    With a window of one step, every step keeps its packs. With a longer window, packs of similar cost are gathered
    from its steps, whose order within a window depends on the seed. Rows that are in no slot keep their packs; no row
    is in two. For the arguments see the module and `BalanceRecord`.
    """
    order = np.arange(len(costs), dtype=np.int64)
    for chunk in _chunks(slots, window_batches):
        members = _dealt(costs, _gather(costs, chunk, seed))
        if begins_cheap:
            members = members[:, :, _rising_and_falling(members.shape[2])]
        elif not matches_micro_batches and 1 < members.shape[2] <= _MOST_EXCHANGED:
            _exchange(costs, members)
        order[chunk.reshape(members.shape)] = members
    return order


def straggler_ratios(
    costs: IntArray, slots: IntArray, *, num_stages: int = 1, has_experts: bool = False
) -> npt.NDArray[Any]:
    """Return each step's time / its time if every pack cost the mean of the step; shape [num_steps], float64.

    Copies of the model meet once, at the end of the step. With expert parallelism (`has_experts`) they meet in every
    layer, so each of their packs takes as long as the most expensive one beside it. Ratios are at least 1, except that
    with pipeline stages a step that begins and ends with cheap packs may be faster than one of mean packs.
    """
    step_costs = costs[slots]
    even = step_costs.sum(axis=2).mean(axis=1) * (1 + (num_stages - 1) / step_costs.shape[2])
    if has_experts:
        step_costs = step_costs.max(axis=1, keepdims=True)
    ratios: npt.NDArray[Any] = step_times(step_costs, num_stages).max(axis=1) / even
    return ratios


def reorder(plan: PackPlan, order: IntArray) -> PackPlan:
    """Return a plan whose pack `i` is pack `order[i]` of the given plan."""
    counts = np.diff(plan.pack_offsets)[order]
    offsets = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(offsets[-1]) + np.repeat(plan.pack_offsets[order] - offsets[:-1], counts)
    return replace(plan, sequence_order=plan.sequence_order[places], pack_offsets=offsets)


def _chunks(slots: IntArray, window_batches: int) -> Iterator[IntArray]:
    """Yield windows of slots, [num_windows, steps per window, ranks, packs]; the last may have fewer steps."""
    num_whole = len(slots) // window_batches
    windows = slots[: num_whole * window_batches].reshape(num_whole, window_batches, *slots.shape[1:])
    at_once = max(_CHUNK_PACKS // windows[:1].size, 1) if num_whole else 1
    yield from (windows[first : first + at_once] for first in range(0, num_whole, at_once))
    if num_whole * window_batches < len(slots):
        yield slots[None, num_whole * window_batches :]


def _gather(costs: IntArray, windows: IntArray, seed: int) -> IntArray:
    """Return the packs of each step, most expensive first, in groups of one per rank; [steps, groups, ranks].

    A window's packs are cut into groups of similar cost. Every step gets one group from each cost range, chosen by
    the seed, so that steps are as similar as the packs allow.
    """
    num_windows, num_batches, num_ranks, num_groups = windows.shape
    packs = windows.reshape(num_windows, -1)
    packs = np.take_along_axis(packs, np.argsort(-costs[packs], axis=1, kind="stable"), axis=1)
    groups = packs.reshape(num_windows, num_groups, num_batches, num_ranks)
    draws = np.argsort(seeded_hash(groups[..., 0].astype(np.uint64), seed), axis=2)
    return np.take_along_axis(groups, draws[..., None], axis=2).swapaxes(1, 2).reshape(-1, num_groups, num_ranks)


def _dealt(costs: IntArray, groups: IntArray) -> IntArray:
    """Return the packs of each rank, [steps, ranks, groups]: the most expensive pack goes to the cheapest rank."""
    num_steps, num_groups, num_ranks = groups.shape
    members = np.empty((num_steps, num_ranks, num_groups), dtype=np.int64)
    loads = np.zeros((num_steps, num_ranks), dtype=np.int64)
    for index in range(num_groups):
        ranks = np.argsort(loads, axis=1, kind="stable")
        np.put_along_axis(members[:, :, index], ranks, groups[:, index], axis=1)
        loads += costs[members[:, :, index]]
    return members


def _rising_and_falling(num_groups: int) -> IntArray:
    """Return an order of groups that are sorted from dear to cheap: each rank begins and ends with cheap packs.

    While the first packs come to the last pipeline stages and the last ones leave them, stages are idle. Neighbours
    are still of like cost, so that stages wait little for each other in between.

    Example: 5 -> [4, 2, 0, 1, 3].
    """
    groups = np.arange(num_groups)[::-1]
    return np.concatenate((groups[::2], groups[1::2][::-1]))


def _exchange(costs: IntArray, members: IntArray) -> None:
    """Exchange packs between expensive and cheap ranks of each step in place; the pairs change every round."""
    member_costs, half = costs[members], members.shape[1] // 2
    for shift in range(_ROUNDS):
        loads = member_costs.sum(axis=2)
        means = loads.sum(axis=1) // loads.shape[1]  # integers, which are the same on every machine
        steps = np.flatnonzero((loads.max(axis=1) - means) * _CLOSE_ENOUGH > means)
        if not len(steps):
            return
        by_load = np.argsort(loads[steps], axis=1, kind="stable")
        dear, cheap = np.roll(by_load[:, ::-1][:, :half], shift, axis=1), by_load[:, :half]
        ranks, cheap_ranks, from_dear, from_cheap, pair_steps = _exchanges(
            member_costs, loads, steps[:, None], dear, cheap
        )
        for packs in (member_costs, members):
            packs[pair_steps, ranks, from_dear], packs[pair_steps, cheap_ranks, from_cheap] = (
                packs[pair_steps, cheap_ranks, from_cheap],
                packs[pair_steps, ranks, from_dear],
            )


def _exchanges(
    member_costs: IntArray, loads: IntArray, steps: IntArray, dear: IntArray, cheap: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return the one-pack exchanges that best even out pairs of ranks: (rank, other, what each gives, step).

    Costs are `member_costs` [all steps, ranks, packs] and `loads` [all steps, ranks]; pairs are [steps, pairs]. Omits
    pairs that no exchange makes more even; each array has shape [num_exchanges].
    """
    gaps = loads[steps, dear] - loads[steps, cheap]
    misses = (
        2 * (member_costs[steps, dear][..., :, None] - member_costs[steps, cheap][..., None, :]) - gaps[..., None, None]
    )
    misses = np.abs(misses, out=misses).reshape(*gaps.shape, -1)
    best = misses.argmin(axis=2)
    helps = np.take_along_axis(misses, best[..., None], axis=2)[..., 0] < np.abs(gaps)
    from_dear, from_cheap = np.divmod(best[helps], member_costs.shape[2])
    return dear[helps], cheap[helps], from_dear, from_cheap, np.broadcast_to(steps, dear.shape)[helps]
