"""How many micro batches each step takes, and so which draws of a loader belong to which step."""

from bisect import bisect_right
from itertools import accumulate

from bridgepack.errors import ConfigError
from bridgepack.replay.settings import ReplaySettings


class StepSizes:
    """Micro batches per step on each rank: constant, or growing at first.

    Source: megatron-core 0.17.1, core/num_microbatches_calculator.py (ConstantNumMicroBatchesCalculator,
    RampupBatchsizeNumMicroBatchesCalculator); megatron-bridge 0.4.2, training/train.py (consumed_train_samples).
    """

    def __init__(self, settings: ReplaySettings) -> None:
        """Work out the steps from the first one that is replayed.

        Raises:
            ConfigError: the host refuses the ramp-up.
        """
        self._settings = settings
        self._constant = settings.global_batch_size // settings.packs_per_pass
        self.consumed_before = self._consumed_after(settings.resume_step)
        if settings.consumed_packs is not None:
            self.consumed_before = settings.consumed_packs
        self._growing = self._growing_from(self.consumed_before)
        self._first_draws = [0, *accumulate(self._growing)]

    def num_micro_batches(self, step: int) -> int:
        """Return the micro batches that each data-parallel rank takes in a step."""
        index = step - self._settings.resume_step - 1
        return self._growing[index] if index < len(self._growing) else self._constant

    def draws_of(self, step: int) -> range:
        """Return the draws of a step, where a draw is a micro batch."""
        index = step - self._settings.resume_step - 1
        num_growing = len(self._growing)
        if index < num_growing:
            first = self._first_draws[index]
        else:
            first = self._first_draws[-1] + (index - num_growing) * self._constant
        return range(first, first + self.num_micro_batches(step))

    def step_of_draw(self, draw: int) -> tuple[int, int]:
        """Return the step that a draw belongs to, and which micro batch of it it is."""
        before = self._first_draws[-1]
        if draw < before:
            index = bisect_right(self._first_draws, draw) - 1
            return self._settings.resume_step + 1 + index, draw - self._first_draws[index]
        index, micro_batch = divmod(draw - before, self._constant)
        return self._settings.resume_step + 1 + len(self._growing) + index, micro_batch

    def _consumed_after(self, num_steps: int) -> int:
        """Return the packs that a run from the start counts in its first steps."""
        growing = self._growing_from(0)[:num_steps]
        return (sum(growing) + (num_steps - len(growing)) * self._constant) * self._settings.packs_per_pass

    def _growing_from(self, consumed: int) -> list[int]:
        """Return the micro batches of each step in which the batch still grows.

        Example: first batch 2, increment 2, over 8 packs, global batch 6, 2 packs at a time -> [1, 1, 2, 3].
        """
        if self._settings.ramp_up is None:
            return []
        first, increment, num_packs = self._settings.ramp_up
        num_increments = _num_increments(self._settings, first, increment, num_packs)
        packs_per_increment = num_packs / num_increments
        unit = self._settings.packs_per_pass
        growing = []
        while consumed <= num_packs:
            size = first + int(consumed / packs_per_increment) * increment
            if size < unit or (size % unit and not self._settings.decrease_batch_size_if_needed):
                raise ConfigError(
                    f"train.rampup_batch_size is {list(self._settings.ramp_up)} and gives a batch of {size}; allowed: "
                    f"multiples of micro_batch_size x data-parallel size, {unit}. Set it to null."
                )
            growing.append(size // unit)
            consumed += size // unit * unit
        return growing


def _num_increments(settings: ReplaySettings, first: int, increment: int, num_packs: int) -> int:
    """Return how often the batch grows."""
    growth = settings.global_batch_size - first
    if first < 1 or increment < 1 or num_packs < 1 or growth < 1 or growth % increment:
        raise ConfigError(
            f"train.rampup_batch_size is {[first, increment, num_packs]} with global_batch_size "
            f"{settings.global_batch_size}; allowed: a first batch below it, whole increments between them, over at "
            "least one pack. Set it to null."
        )
    return growth // increment
