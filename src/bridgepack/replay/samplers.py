"""Predicts what the host's samplers yield on each data-parallel rank, pass by pass over the data.

A *pass* is everything that a sampler yields from one `iter()`; the host's `cyclic_iter` then calls `iter()` again. A
*draw* is one item that it yields: a rank's share of a global batch for `batch`, a micro batch for the others.
A *sample* is an index into the host's dataset, which `max_train_samples` maps to packs.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records.messages import say, setting
from bridgepack.replay.settings import ReplaySettings

#: From this size, torch draws 64 bits per element.
#: Source: pytorch, aten/src/ATen/native/TensorFactories.cpp (randperm_cpu).
MAX_PERMUTATION = (2**32 - 1) // 20
_SEED_BITS = 2**32


def torch_permutation(size: int, seed: int) -> IntArray:
    """Return `torch.randperm(size)` of a CPU generator after `manual_seed(seed)`; shape [size], int64.

    Swaps element `i` with element `i + draw % (size - i)`, where the draws are MT19937's 32-bit numbers; the seed is
    taken modulo 2**32. Example: size 5, seed 1234 -> [0 4 2 1 3].

    Source: pytorch, aten/src/ATen/native/TensorFactories.cpp (randperm_cpu), core/MT19937RNGEngine.h.

    Raises:
        ConfigError: torch does not shuffle this many elements in this way.
    """
    if size >= MAX_PERMUTATION:
        raise ConfigError(f"num_packs is {size}; allowed: below {MAX_PERMUTATION}, the limit of a replay.")
    generator = np.random.MT19937()  # with the state of `init_genrand(seed)`
    generator.state = np.random.RandomState(seed % _SEED_BITS).get_state(legacy=False)  # type: ignore[assignment]
    draws = generator.random_raw(max(size - 1, 0)).astype(np.int64)
    places = np.arange(size - 1) + draws % np.arange(size, 1, -1) if size > 1 else draws
    order = list(range(size))
    for index, place in enumerate(places.tolist()):
        order[index], order[place] = order[place], order[index]
    return np.array(order, dtype=np.int64)


def shuffled_epochs(num_rows: int, num_samples: int, seed: int) -> IntArray:
    """Return the rows that the host's packed dataset reads if limited to `num_samples`; shape [num_samples], int64.

    Concatenates random permutations of all rows until there are enough, and cuts off the rest.

    Source: megatron-bridge 0.6.2, GPTSFTPackedDataset.__init__ (np.random.seed) and _build_samples_mapping,
    in data/packing/gpt_sft.py and parquet.py.
    """
    # The host uses NumPy's legacy generator, whose stream is frozen by NumPy's policy (NEP 19).
    random = np.random.RandomState(seed)
    epochs = np.tile(np.arange(num_rows, dtype=np.int64), (-(-num_samples // num_rows), 1))
    for epoch in epochs:
        random.shuffle(epoch)
    return epochs.reshape(-1)[:num_samples]


#: Sample that fills up a batch: the host reads its last sample with a loss mask of zeros.
#: Source: megatron-bridge 0.6.2, data/packing/parquet.py (__getitem__, negative indices).
FILLER = -1
#: No sample: the micro batch has fewer rows than micro_batch_size.
ABSENT = -2
_NUM_CACHED_EPOCHS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One pass of one rank's sampler."""

    consumed: int  #: the sampler's count of samples when the pass began
    first_draw: int  #: number of draws before it since the loader was created
    num_draws: int

    @property
    def next_draw(self) -> int:
        """The first draw after the pass."""
        return self.first_draw + self.num_draws


class Sampler(ABC):
    """Draws of one loader on every data-parallel rank."""

    def __init__(self, settings: ReplaySettings, *, num_consumed: int) -> None:
        self._settings = settings
        self._data_parallel_size = settings.topology.data_parallel_size
        self._permutation = lru_cache(maxsize=_NUM_CACHED_EPOCHS)(torch_permutation)
        # does not keep other ranks' draws in memory
        self._samples = lru_cache(maxsize=2 * self._data_parallel_size)(
            lambda rank, pass_read: np.ascontiguousarray(self._samples_of(rank, pass_read))
        )
        self._consumed = num_consumed
        self._passes: list[list[Pass]] = [[] for _ in range(self._data_parallel_size)]

    def draw(self, rank: int, index: int) -> IntArray:
        """Return the samples of a rank's draw; shape [num_samples], int64, may contain FILLER.

        Raises:
            ConfigError: the host stops or hangs before this draw.
        """
        pass_read = self.pass_at(rank, index)
        samples: IntArray = self.samples_in(rank, pass_read)[index - pass_read.first_draw]
        present: IntArray = samples[samples != ABSENT]
        return present

    def samples_in(self, rank: int, pass_read: Pass) -> IntArray:
        """Return every draw of a pass; shape [num_draws, samples per draw], int64, may contain FILLER and ABSENT."""
        samples: IntArray = self._samples(rank, pass_read)
        return samples

    def pass_at(self, rank: int, index: int) -> Pass:
        """Return the pass that contains a draw."""
        passes = self._passes[rank]
        if not passes:
            passes.append(self._pass(rank, self._consumed, first_draw=0))
        while passes[-1].next_draw <= index:
            last = passes[-1]
            passes.append(self._pass(rank, self._consumed_after(last), first_draw=last.next_draw))
        return passes[bisect_right(passes, index, key=lambda item: item.first_draw) - 1]

    def _pass(self, rank: int, num_consumed: int, *, first_draw: int) -> Pass:
        num_draws = self._num_draws(rank, num_consumed)
        if num_draws == 0:
            raise ConfigError(
                say(
                    "{train.global_batch_size} is {size}; megatron-bridge {version} hangs with {num_consumed} of "
                    "{total} packs consumed: its sampler has no batch left and is asked forever. Resume from another "
                    "checkpoint, or with the batch size of this one.",
                    size=self._settings.global_batch_size,
                    version=self._settings.version,
                    num_consumed=num_consumed,
                    total=self._settings.num_samples,
                )
            )
        return Pass(consumed=num_consumed, first_draw=first_draw, num_draws=num_draws)

    @abstractmethod
    def _num_draws(self, rank: int, num_consumed: int) -> int: ...  # of a pass that begins after `num_consumed` samples

    @abstractmethod
    def _consumed_after(self, last: Pass) -> int: ...

    @abstractmethod
    def _samples_of(self, rank: int, pass_read: Pass) -> IntArray: ...


class ShuffledBatchSampler(Sampler):
    """`batch` since 0.6: shuffles every epoch, cuts it into global batches, deals each out to the ranks in turn.

    Source: megatron-bridge 0.6.2, data/samplers.py (MegatronPretrainingBatchSampler).
    """

    def __init__(self, settings: ReplaySettings, *, num_consumed: int) -> None:
        super().__init__(settings, num_consumed=num_consumed)
        self._global_batches = lru_cache(maxsize=2)(self._global_batches_of)

    def _num_draws(self, rank: int, num_consumed: int) -> int:
        del rank
        _, num_left = self._position(num_consumed)
        size = self._settings.global_batch_size
        return max(num_left // size if self._settings.drop_last else -(-num_left // size), 0)

    def _consumed_after(self, last: Pass) -> int:
        return last.consumed + last.num_draws * self._settings.global_batch_size

    def _samples_of(self, rank: int, pass_read: Pass) -> IntArray:
        samples: IntArray = self._global_batches(pass_read)[:, rank :: self._data_parallel_size]
        return samples

    def _global_batches_of(self, pass_read: Pass) -> IntArray:
        size = self._settings.global_batch_size
        epoch, num_left = self._position(pass_read.consumed)
        order = self._permutation(self._settings.num_samples, self._settings.seed + epoch)
        order = order[len(order) - num_left :][: pass_read.num_draws * size]
        samples = np.full(pass_read.num_draws * size, FILLER, dtype=np.int64)
        samples[: len(order)] = order
        return samples.reshape(pass_read.num_draws, size)

    def _position(self, num_consumed: int) -> tuple[int, int]:
        """Return (epoch, samples left in it)."""
        size, total = self._settings.global_batch_size, self._settings.num_samples
        per_epoch = (total // size if self._settings.drop_last else -(-total // size)) * size
        epoch, offset = divmod(num_consumed, per_epoch)
        return epoch, total - offset


class SequentialSampler(Sampler):
    """`single`: once through, in file order; each rank takes the next micro batch.

    Source: megatron-bridge 0.6.2, data/samplers.py (MegatronPretrainingSampler).
    """

    def _num_draws(self, rank: int, num_consumed: int) -> int:
        del rank
        num_left = self._settings.num_samples - num_consumed
        if num_left <= 0:
            raise ConfigError(
                say(
                    "{num_consumed} packs are consumed and the run has {total}; Megatron-Bridge stops: "
                    "{dataset.dataloader_type} single reads them only once. Set it to batch.",
                    num_consumed=num_consumed,
                    total=self._settings.num_samples,
                )
            )
        unit = self._settings.packs_per_pass
        if self._settings.drop_last:
            return num_left // unit
        if self._settings.host.refuses_uneven_rest and self._data_parallel_size > 1 and num_left % unit:
            raise ConfigError(
                say(
                    "{dataset.drop_last} is false with {dataset.dataloader_type} single; Megatron-Bridge refuses "
                    "{num_left} packs, as {unit} at a time do not share them among {ranks} data-parallel ranks evenly. "
                    "Set it to true.",
                    num_left=num_left,
                    unit=unit,
                    ranks=self._data_parallel_size,
                )
            )
        return -(-num_left // unit)

    def _pass(self, rank: int, num_consumed: int, *, first_draw: int) -> Pass:
        return Pass(consumed=num_consumed, first_draw=first_draw, num_draws=self._num_draws(rank, num_consumed))

    def _consumed_after(self, last: Pass) -> int:
        raise ConfigError(
            say(
                "{dataset.dataloader_type} is single; Megatron-Bridge stops after {num_draws} micro batches per rank, "
                "having read the packs once. Set it to batch, or ask for fewer steps.",
                num_draws=last.next_draw,
            )
        )

    def _samples_of(self, rank: int, pass_read: Pass) -> IntArray:
        size, unit = self._settings.micro_batch_size, self._settings.packs_per_pass
        starts = pass_read.consumed + np.arange(pass_read.num_draws)[:, None] * unit
        samples = starts + np.arange(rank * size, (rank + 1) * size)
        return np.where(samples < self._settings.num_samples, samples, ABSENT)


class CyclicSampler(Sampler):
    """`cyclic`: shuffles every epoch, ignoring the seed; without sharding, ranks can end an epoch at different steps.

    Source: megatron-bridge 0.6.2, data/samplers.py (MegatronPretrainingRandomSampler).
    """

    def _num_draws(self, rank: int, num_consumed: int) -> int:
        return self._left_of(rank, self._position(num_consumed)[1]) // self._settings.micro_batch_size

    def _consumed_after(self, last: Pass) -> int:
        return last.consumed + last.num_draws * self._settings.packs_per_pass

    def _samples_of(self, rank: int, pass_read: Pass) -> IntArray:
        epoch, offset = self._position(pass_read.consumed)
        if self._settings.data_sharding:
            bucket = self._bucket_size()
            order = self._permutation(bucket, epoch)[offset // self._data_parallel_size :] + rank * bucket
        else:
            order = self._permutation(self._whole_micro_batches(), epoch)[offset:][rank :: self._data_parallel_size]
        size = self._settings.micro_batch_size
        return order[: pass_read.num_draws * size].reshape(pass_read.num_draws, size)

    def _left_of(self, rank: int, offset: int) -> int:
        if self._settings.data_sharding:
            return self._bucket_size() - offset // self._data_parallel_size
        return max(-(-(self._whole_micro_batches() - offset - rank) // self._data_parallel_size), 0)

    def _position(self, num_consumed: int) -> tuple[int, int]:
        """Return (epoch, samples that all ranks have consumed in it)."""
        unit, total = self._settings.packs_per_pass, self._settings.num_samples
        if total < unit:
            raise ConfigError(
                say(
                    "{train.micro_batch_size} is {size} on {ranks} data-parallel ranks, {unit} packs at a time; "
                    "allowed: at most the number of packs, {total}. Training cannot start: lower it, or give more "
                    "packs.",
                    size=self._settings.micro_batch_size,
                    ranks=self._data_parallel_size,
                    unit=unit,
                    total=total,
                )
            )
        epoch, offset = divmod(num_consumed, total // unit * unit)
        if offset % unit:
            raise ConfigError(
                say(
                    "{num_consumed} packs are consumed; allowed with {dataset.dataloader_type} cyclic: a multiple of "
                    "{train.micro_batch_size} x data-parallel size, {unit}, in the epoch. Resume with the checkpoint's "
                    "sizes.",
                    num_consumed=num_consumed,
                    unit=unit,
                )
            )
        return epoch, offset

    def _bucket_size(self) -> int:
        return self._settings.num_samples // self._settings.packs_per_pass * self._settings.micro_batch_size

    def _whole_micro_batches(self) -> int:
        size = self._settings.micro_batch_size
        return self._settings.num_samples // size * size


def make_sampler(settings: ReplaySettings, *, num_consumed: int) -> Sampler:
    """Return the sampler of a loader that is created after `num_consumed` samples.

    Raises:
        ConfigError: the host cannot make its first batch.
    """
    _check_supply(settings)
    if settings.loader == "single":
        return SequentialSampler(settings, num_consumed=num_consumed)
    if settings.loader == "cyclic":
        return CyclicSampler(settings, num_consumed=num_consumed)
    return ShuffledBatchSampler(settings, num_consumed=num_consumed)


def _check_supply(settings: ReplaySettings) -> None:
    """Refuse fewer packs than the host needs to start.

    Source: megatron-bridge 0.6.2, data/loaders.py ("Not enough train samples"), data/samplers.py
    (_active_total_samples).
    """
    is_looked_at = settings.loader == "batch" or not settings.is_evaluation
    if is_looked_at and settings.drop_last and settings.num_samples < settings.global_batch_size:
        name = "validation.eval_global_batch_size" if settings.is_evaluation else "train.global_batch_size"
        raise ConfigError(
            say(
                "{name} is {size}; allowed: at most the number of packs, {num_packs}. Training cannot start: lower it "
                "(a recipe's batch.tokens_per_step, if that sets it), or build more packs.",
                name=setting(name),
                size=settings.global_batch_size,
                num_packs=settings.num_samples,
            )
        )
