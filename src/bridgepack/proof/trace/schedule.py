"""Computes when a run reads a pack: epochs, steps, ranks."""

from itertools import islice

from bridgepack.errors import ConfigError
from bridgepack.proof.runs import TracedRun
from bridgepack.proof.trace.records import Schedule, SeenAt
from bridgepack.records import TRAIN
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings
from bridgepack.replay.topology import Topology

_NO_WORLD_SIZE = (
    "steps and ranks are unknown: the recipe has no parallelism.num_gpus. Give --world-size, the run's GPUs"
)


def schedule_of_pack(run: TracedRun, split: str, pack: int, *, limit: int) -> Schedule:
    """Return the times at which a run reads a pack, without fillers.

    Args:
        run: the run.
        split: split of the pack.
        pack: row of the split.
        limit: maximum times to list; all are counted.

    Raises:
        ConfigError: the host cannot run with the settings.
    """
    if not run.has_world_size:
        return Schedule(num_times=0, num_steps=None, seen=(), note=_NO_WORLD_SIZE)
    num_steps, evaluation = run.schedule.num_steps, None if split == TRAIN else run.schedule
    if num_steps is None:
        note = "the number of the run's steps is unknown. Set schedule.num_epochs or train_iters"
        return Schedule(num_times=0, num_steps=None, seen=(), note=note)
    last = num_steps if evaluation is None else max(evaluation.final_batches(), default=0)
    if last == 0:
        return Schedule(num_times=0, num_steps=None, seen=(), note="the run does not evaluate (eval_iters is 0)")
    order = run.order(split)
    sightings = (found for found in order.steps_of(pack, last_step=last) if not found.is_filler)
    ranks = ranks_by_copy(order.topology)
    seen = tuple(
        SeenAt(
            step=found.step,
            epoch=epoch_of(order.settings, found.step, found.micro_batch),
            after_step=None if evaluation is None else evaluated_after(evaluation, found.step),
            data_parallel_rank=found.data_parallel_rank,
            global_ranks=ranks[found.data_parallel_rank],
            micro_batch=found.micro_batch,
        )
        for found in islice(sightings, limit)
    )
    num_times = len(seen) + sum(1 for _ in sightings)
    why_never = None if num_times else _why_never(order)
    return Schedule(num_times=num_times, num_steps=num_steps, seen=seen, note=why_never)


def ranks_by_copy(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the global ranks of every data-parallel rank, ascending."""
    copies: list[list[int]] = [[] for _ in range(topology.data_parallel_size)]
    for rank in range(topology.world_size):
        copies[topology.data_parallel_rank_of(rank)].append(rank)
    return tuple(map(tuple, copies))


def epoch_of(settings: ReplaySettings, step: int, micro_batch: int = 0) -> int | None:
    """Return the epoch of a step's packs, from 1; None if epochs do not apply.

    Example: 5 packs, 2 a step, no rest taken -> steps 1 and 2 are epoch 1, step 3 is epoch 2.
    """
    size, total = settings.global_batch_size, settings.num_samples
    is_resumed_earlier = settings.resume_step > 0 and not settings.host.shuffles_batches
    if settings.max_samples is not None or is_resumed_earlier or settings.is_evaluation:
        return None
    if settings.loader == "single":
        return 1
    if settings.loader == "batch":
        per_epoch = total // size if settings.drop_last else -(-total // size)
        return (step - 1) // max(per_epoch, 1) + 1
    unit = settings.packs_per_pass
    per_epoch = total // unit * unit
    if not settings.data_sharding or not per_epoch:
        return None
    return ((step - 1) * (size // unit * unit) + micro_batch * unit) // per_epoch + 1


def evaluated_after(evaluation: EvaluationSchedule, batch: int) -> int | None:
    """Return the step after which an evaluation batch is read; None if unknown.

    Example: every 10 steps 4 batches -> batches 1 to 4 after step 10, batch 5 after step 20.
    """
    if evaluation.num_steps is not None and batch in evaluation.final_batches():
        return evaluation.num_steps
    if not evaluation.eval_interval or evaluation.eval_iters < 1:
        return None
    num_left_out = (max(evaluation.start_eval_at_iter or 1, 1) - 1) // evaluation.eval_interval
    return (num_left_out + (batch - 1) // evaluation.eval_iters + 1) * evaluation.eval_interval


def _why_never(order: PackOrder) -> str | None:
    settings = order.settings
    if settings.is_evaluation:
        return "the run's evaluations end before it, or skip it because it does not fill a batch"
    if settings.loader == "batch" and settings.num_samples % settings.global_batch_size and settings.drop_last:
        num_left_out = settings.num_samples % settings.global_batch_size
        return f"{num_left_out} of {settings.num_samples} packs do not fill a global batch; every epoch skips them"
    return "the run ends before it"


def require_step(run: TracedRun, step: int) -> None:
    """Refuse a step that is not in the run's training.

    Raises:
        ConfigError: the step does not exist.
    """
    last, first = run.schedule.num_steps, run.options.resume_step + 1
    if step < first or (last is not None and step > last):
        raise ConfigError(
            f"--step is {step}; allowed: {first} to {'any' if last is None else last}, as Megatron-Bridge logs them."
        )
