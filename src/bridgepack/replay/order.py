"""Predicts the packs that the host's loader gives each data-parallel rank at each step.

Steps count as the host logs them: the first is 1, and step 101 follows the checkpoint of step 100. Evaluation batches
count in the same way over the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records.messages import say
from bridgepack.replay.samplers import FILLER, make_sampler, shuffled_epochs
from bridgepack.replay.settings import ReplaySettings

__all__ = ["FILLER", "PackOrder", "Sighting", "replay_order"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Sighting:
    """One time at which a run reads a pack."""

    step: int  #: as the host logs it, from 1
    data_parallel_rank: int  #: which copy of the model
    micro_batch: int  #: of the step, from 0
    position: int  #: in the micro batch, from 0
    is_filler: bool  #: only fills up a batch, with a loss mask of zeros


class PackOrder:
    """The packs of every step of a run, starting after `settings.resume_step`.

    Keeps the orders of a few epochs in memory, 8 bytes per pack, and a few numbers per epoch.

    Example: 5 packs, a global batch of 2, two ranks, loader `single` -> step 1 [0] and [1], step 2 [2] and [3]:
    the fifth is never read.

    Raises:
        ConfigError: training cannot start: the host stops or hangs before the first step.
    """

    def __init__(self, settings: ReplaySettings) -> None:
        self.settings = settings
        self.topology = settings.topology
        num_micro_batches = settings.global_batch_size // settings.packs_per_pass
        self._draws_per_step = 1 if settings.loader == "batch" else num_micro_batches
        self._packs_per_step = num_micro_batches * settings.micro_batch_size
        num_consumed = settings.consumed_packs
        if num_consumed is None:
            num_consumed = settings.resume_step * settings.global_batch_size
        self._sampler = make_sampler(settings, num_consumed=num_consumed)
        is_over = settings.num_steps is not None and settings.resume_step >= settings.num_steps
        for rank in range(0 if is_over else self.topology.data_parallel_size):
            self._sampler.pass_at(rank, 0)
        self._rows = (
            None
            if settings.max_samples is None
            else shuffled_epochs(settings.num_packs, settings.max_samples, settings.seed)
        )

    @property
    def first_step(self) -> int:
        """The first replayed step, right after the checkpoint."""
        return self.settings.resume_step + 1

    @property
    def filler_pack(self) -> int:
        """The pack that the host reads for FILLER, with a loss mask of zeros: the last one."""
        return self.settings.num_packs - 1 if self._rows is None else int(self._rows[-1])

    def packs_at(self, step: int, data_parallel_rank: int) -> IntArray:
        """Return the packs of a rank at a step; shape [num_packs], int64, in micro batch order, may contain FILLER.

        Packs are numbered from 0 over the split's shards in the order of their names.

        Raises:
            ConfigError: the step or rank does not exist, or the host stops before it.
        """
        return np.concatenate(self.micro_batches_at(step, data_parallel_rank))

    def micro_batches_at(self, step: int, data_parallel_rank: int) -> tuple[IntArray, ...]:
        """Return the packs of a rank at a step, one array per micro batch.

        Source: megatron-bridge 0.6.2, data/batch_utils.py (split_batch_into_microbatches), training/train.py;
        megatron-core 0.19.2, core/num_microbatches_calculator.py (ConstantNumMicroBatchesCalculator).
        """
        self._require_step(step)
        if not 0 <= data_parallel_rank < self.topology.data_parallel_size:
            raise ConfigError(
                f"data_parallel_rank is {data_parallel_rank}; allowed: 0 to {self.topology.data_parallel_size - 1}. "
                f"{self.topology.world_size} ranks hold {self.topology.data_parallel_size} copies of the model."
            )
        draws = [self._sampler.draw(data_parallel_rank, index) for index in self._draws_of(step)]
        if self.settings.loader == "batch":
            draws = list(draws[0].reshape(-1, self.settings.micro_batch_size))
        if not all(map(len, draws)):
            raise ConfigError(
                say(
                    "{dataset.drop_last} is false with {dataset.dataloader_type} single; the last packs give "
                    "data-parallel rank {rank} nothing at step {step}, and Megatron-Bridge stops. Set it to true.",
                    rank=data_parallel_rank,
                    step=step,
                )
            )
        return tuple(self._packs_of(draw) for draw in draws)

    def first_pass(self) -> IntArray:
        """Return the packs of all whole steps until a loader restarts; shape [num_steps, num_ranks, num_packs], int64.

        A rank's packs are in micro batch order. Omits a last step with fillers.
        """
        num_packs, tables = self._packs_per_step, []
        for rank in range(self.topology.data_parallel_size):
            table = self._sampler.samples_in(rank, self._sampler.pass_at(rank, 0))
            tables.append(table[: table.size // num_packs * num_packs // table.shape[1]].reshape(-1, num_packs))
        samples = np.stack([table[: min(map(len, tables))] for table in tables], axis=1)
        return self._packs_of(samples[(samples >= 0).all(axis=(1, 2))])

    def steps_of(self, pack: int, *, last_step: int | None = None) -> Iterator[Sighting]:
        """Yield the times at which the run reads a pack, up to `last_step` (default: the run's last), in step order.

        Raises:
            ConfigError: the pack or step does not exist, or the run's end is unknown.
        """
        if not 0 <= pack < self.settings.num_packs:
            raise ConfigError(f"pack is {pack}; allowed: 0 to {self.settings.num_packs - 1}.")
        last = self.settings.num_steps if last_step is None else last_step
        if last is None:
            raise ConfigError("last_step is not given and the run's number of steps is unknown. Give last_step.")
        if last < self.first_step:
            return
        self._require_step(last)
        samples = np.array([pack]) if self._rows is None else np.flatnonzero(self._rows == pack)
        if pack == self.filler_pack:
            samples = np.append(samples, FILLER)
        yield from sorted(self._sightings(samples, last))

    def _sightings(self, samples: IntArray, last_step: int) -> Iterator[Sighting]:
        """Yield sightings pass by pass, so that all ranks use an epoch's order while it is in memory."""
        end = self._draws_of(last_step)[-1] + 1
        next_draws = dict.fromkeys(range(self.topology.data_parallel_size), 0)
        while next_draws:
            for rank, index in list(next_draws.items()):
                pass_read = self._sampler.pass_at(rank, index)
                table = self._sampler.samples_in(rank, pass_read)[: end - pass_read.first_draw]
                for draw, place in np.argwhere(np.isin(table, samples)).tolist():
                    step, draw_of_step = divmod(pass_read.first_draw + draw, self._draws_per_step)
                    # a draw is a micro batch, or with the loader `batch` a whole step
                    micro_batch, position = divmod(place, self.settings.micro_batch_size)
                    yield Sighting(
                        step=self.first_step + step,
                        data_parallel_rank=rank,
                        micro_batch=draw_of_step + micro_batch,
                        position=position,
                        is_filler=bool(table[draw, place] == FILLER),
                    )
                next_draws[rank] = pass_read.next_draw
            next_draws = {rank: index for rank, index in next_draws.items() if index < end}

    def _draws_of(self, step: int) -> range:
        first = (step - self.first_step) * self._draws_per_step
        return range(first, first + self._draws_per_step)

    def _packs_of(self, samples: IntArray) -> IntArray:
        if self._rows is None:
            return samples
        return np.where(samples == FILLER, FILLER, self._rows[samples])

    def _require_step(self, step: int) -> None:
        last = self.settings.num_steps
        if step < self.first_step or (last is not None and step > last):
            raise ConfigError(
                f"step is {step}; allowed: {self.first_step} to {'any' if last is None else last}, as the host logs "
                "them."
            )


def replay_order(settings: ReplaySettings) -> PackOrder:
    """Return the order of a run's packs; public name, documented in docs/trace.md."""
    return PackOrder(settings)
