"""The order of packs in which no rank waits long for another, and how long ranks wait in an order; pure.

*Slots* are the rows that a loader reads, shape [num_steps, num_ranks, packs per rank], int64: row `slots[s, r, m]` of
the split is the micro batch `m` of rank `r` at step `s`. Costs are of packs, shape [num_packs], in any unit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.order import seeded_hash
from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records import BalanceRecord, PackPlan
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import Loader, ReplaySettings
from bridgepack.replay.topology import Topology

#: Rounds in which ranks exchange packs; most steps want fewer than 10.
_ROUNDS = 16
#: Packs per rank above which dealing alone is even.
_MOST_EXCHANGED = 64
#: Part of the mean, one in so many, that the dearest rank of a step may stay above it.
_CLOSE_ENOUGH = 1000
#: Packs whose dealing is held in memory at a time.
_CHUNK_PACKS = 1 << 17


def balanced(plan: PackPlan, runtime_lengths: IntArray, balance: BalanceRecord, *, has_tail: bool) -> PackPlan:
    """Return a plan with its packs in the order that a record asks for; arguments as of `plan_packs` and `pack_costs`.

    Raises:
        ConfigError: the host cannot make a step of so few packs.
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
    )
    return reordered(plan, order)


def slots_of(balance: BalanceRecord, num_packs: int) -> IntArray:
    """Return the slots of the first epoch that the loader of a record reads of so many packs.

    Raises:
        ConfigError: the host cannot make a step of them.
    """
    if num_packs < balance.global_batch_size:
        raise ConfigError(
            f"batch.global_batch_size is {balance.global_batch_size}; allowed with packing.balance: at most the number "
            f"of packs, {num_packs}. Lower it, or set packing.balance.kind to none."
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

    Rows are charged as wide as the host makes them: `packed_sequence_size`, as `to_bridge` sets `pad_to_max_length`.

    Example: lengths [3 4 | 5], token_cost 10, size 8, has_tail -> [10 * 8 + 9 + 16 + 1, 10 * 8 + 25 + 9].

    Args:
        runtime_lengths: in the order of packs, shape [num_sequences], physical.
        pack_offsets: first sequence of each pack, and their number; shape [num_packs + 1].
        token_cost: as in `BalanceRecord`.
        windows: as in `BalanceRecord`.
        packed_sequence_size: runtime tokens of a row.
        has_tail: attention sees the empty end of a row as one more sequence, as with pad_seq_to_mult 1.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn).
    """
    tails = packed_sequence_size - np.add.reduceat(runtime_lengths, pack_offsets[:-1])
    pairs = np.add.reduceat(_pairs(runtime_lengths, windows), pack_offsets[:-1])
    return token_cost * packed_sequence_size + pairs + _pairs(tails * has_tail, windows)


def _pairs(lengths: IntArray, windows: Sequence[tuple[int, float]]) -> IntArray:
    """Return the cost of attention in each sequence; whole numbers, so that sums are the same on every machine."""
    pairs = lengths * lengths
    for window, share in windows:
        pairs -= np.rint(share * np.maximum(lengths - window, 0) ** 2).astype(np.int64)
    return pairs


def balanced_order(
    costs: IntArray, slots: IntArray, *, window_batches: int = 1, seed: int = 0, matches_micro_batches: bool = False
) -> IntArray:
    """Return which pack lies in which row, so that the ranks of a step cost the same; shape [num_packs], int64.

    With a window of one step every step keeps its packs. With more, packs of like cost are gathered from the steps of
    a window. Rows that no slot names keep their packs.

    Args:
        costs: of the packs as they lie now.
        slots: see the module; no row twice.
        window_batches: steps that exchange packs.
        seed: of the order of steps within a window.
        matches_micro_batches: ranks wait for each other in every micro batch, not only at the end of the step.
    """
    order = np.arange(len(costs), dtype=np.int64)
    for chunk in _chunks(slots, window_batches):
        members = _dealt(costs, _gathered(costs, chunk, seed))
        if not matches_micro_batches and 1 < members.shape[2] <= _MOST_EXCHANGED:
            _exchange(costs, members)
        order[chunk.reshape(members.shape)] = members
    return order


def straggler_ratios(costs: IntArray, slots: IntArray, *, matches_micro_batches: bool = False) -> npt.NDArray[Any]:
    """Return how much longer each step takes than if all ranks cost the same; shape [num_steps], float64, from 1."""
    found = costs[slots]
    slowest = found.max(axis=1).sum(axis=1) if matches_micro_batches else found.sum(axis=2).max(axis=1)
    ratios: npt.NDArray[Any] = slowest / found.sum(axis=2).mean(axis=1)
    return ratios


def reordered(plan: PackPlan, order: IntArray) -> PackPlan:
    """Return a plan whose row `i` is the pack `order[i]` of the plan."""
    counts = np.diff(plan.pack_offsets)[order]
    offsets = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(offsets[-1]) + np.repeat(plan.pack_offsets[order] - offsets[:-1], counts)
    return PackPlan(
        sequence_order=plan.sequence_order[places],
        pack_offsets=offsets,
        packed_sequence_size=plan.packed_sequence_size,
    )


def _chunks(slots: IntArray, window_batches: int) -> Iterator[IntArray]:
    """Yield whole windows of slots, [windows, steps of a window, ranks, packs]; the last one may have fewer steps."""
    num_whole = len(slots) // window_batches
    windows = slots[: num_whole * window_batches].reshape(num_whole, window_batches, *slots.shape[1:])
    at_once = max(_CHUNK_PACKS // windows[:1].size, 1) if num_whole else 1
    yield from (windows[first : first + at_once] for first in range(0, num_whole, at_once))
    if num_whole * window_batches < len(slots):
        yield slots[None, num_whole * window_batches :]


def _gathered(costs: IntArray, windows: IntArray, seed: int) -> IntArray:
    """Return the packs of each step, the dearest first, in groups of one for each rank; [steps, groups, ranks].

    A window's packs are cut into groups of like cost. Every step gets a group of each range of costs, which one by the
    seed, so that steps are as alike as their packs allow.
    """
    num_windows, num_batches, num_ranks, num_groups = windows.shape
    packs = windows.reshape(num_windows, -1)
    packs = np.take_along_axis(packs, np.argsort(-costs[packs], axis=1, kind="stable"), axis=1)
    groups = packs.reshape(num_windows, num_groups, num_batches, num_ranks)
    drawn = np.argsort(seeded_hash(groups[..., 0].astype(np.uint64), seed), axis=2)
    return np.take_along_axis(groups, drawn[..., None], axis=2).swapaxes(1, 2).reshape(-1, num_groups, num_ranks)


def _dealt(costs: IntArray, groups: IntArray) -> IntArray:
    """Return the packs of each rank, [steps, ranks, groups]: of each group the dearest goes to the cheapest rank."""
    num_steps, num_groups, num_ranks = groups.shape
    members = np.empty((num_steps, num_ranks, num_groups), dtype=np.int64)
    loads = np.zeros((num_steps, num_ranks), dtype=np.int64)
    for index in range(num_groups):
        ranks = np.argsort(loads, axis=1, kind="stable")
        np.put_along_axis(members[:, :, index], ranks, groups[:, index], axis=1)
        loads += costs[members[:, :, index]]
    return members


def _exchange(costs: IntArray, members: IntArray) -> None:
    """Let dear ranks of each step exchange packs with cheap ones, in pairs that change from round to round."""
    held, half = costs[members], members.shape[1] // 2
    for shift in range(_ROUNDS):
        loads = held.sum(axis=2)
        means = loads.sum(axis=1) // loads.shape[1]  # whole numbers, which are the same on every machine
        steps = np.flatnonzero((loads.max(axis=1) - means) * _CLOSE_ENOUGH > means)
        if not len(steps):
            return
        by_load = np.argsort(loads[steps], axis=1, kind="stable")
        dear, cheap = np.roll(by_load[:, ::-1][:, :half], shift, axis=1), by_load[:, :half]
        ranks, others, given, taken, pair_steps = _exchanges(held, loads, steps[:, None], dear, cheap)
        for packs in (held, members):
            packs[pair_steps, ranks, given], packs[pair_steps, others, taken] = (
                packs[pair_steps, others, taken],
                packs[pair_steps, ranks, given],
            )


def _exchanges(
    held: IntArray, loads: IntArray, steps: IntArray, dear: IntArray, cheap: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return the exchanges of one pack that make pairs of ranks most even: (rank, other, what each gives, step).

    Costs are `held` [all steps, ranks, packs] and `loads` [all steps, ranks]; pairs are [steps, pairs]. Pairs that no
    exchange makes more even are left out; each array has shape [num_exchanges].
    """
    gaps = loads[steps, dear] - loads[steps, cheap]
    misses = 2 * (held[steps, dear][..., :, None] - held[steps, cheap][..., None, :]) - gaps[..., None, None]
    misses = np.abs(misses, out=misses).reshape(*gaps.shape, -1)
    chosen = misses.argmin(axis=2)
    helps = np.take_along_axis(misses, chosen[..., None], axis=2)[..., 0] < np.abs(gaps)
    given, taken = np.divmod(chosen[helps], held.shape[2])
    return dear[helps], cheap[helps], given, taken, np.broadcast_to(steps, dear.shape)[helps]
