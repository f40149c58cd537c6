"""What an order of packs is balanced for, and how long ranks wait for the slowest rank."""

from dataclasses import dataclass
from typing import Any, Self

from bridgepack.releases import release_of


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceRecord:
    """What an order of packs is balanced for; `resolved.balance` in the manifest."""

    kind: str  #: `within_batch` or `across_batches`
    window_batches: int  #: steps that exchange packs; 1 within a batch
    seed: int  #: seed for the order of steps within a window
    token_cost: int  #: cost of a token, in units of a pair of tokens that attend to each other
    #: (window in tokens, share of a pair's cost, 0-1, in layers with that attention window)
    windows: tuple[tuple[int, float], ...]
    matches_micro_batches: bool  #: ranks wait for each other after every micro batch, not only at the end of a step
    version: str  #: version of Megatron-Bridge whose loader reads the packs
    loader: str  #: `dataset.dataloader_type`
    loader_seed: int  #: `dataset.seed`
    data_sharding: bool  #: `dataset.data_sharding`
    data_parallel_size: int
    global_batch_size: int  #: packs per step

    def described(self) -> str:
        """Return the record as text."""
        window = f" over {self.window_batches} steps" if self.window_batches > 1 else ""
        seed = f", seed {self.loader_seed}" if self.loader == "batch" else ""
        return (
            f"{self.kind}{window}, for {self.data_parallel_size} data-parallel ranks, {self.global_batch_size} packs a "
            f"step, loader {self.loader}{seed}; in the first epoch"
        )

    def differences(self, run: Self) -> dict[str, tuple[Any, Any]]:
        """Return name -> (value here, value in `run`) of differences that change which packs a rank reads."""
        names = ["loader", "loader_seed", "data_parallel_size", "global_batch_size"]
        if self.loader == "single":
            names.remove("loader_seed")
        elif self.loader == "cyclic":
            names[1] = "data_sharding"
        if release_of(self.version).shuffles_batches != release_of(run.version).shuffles_batches:
            names.append("version")
        both = {name: (getattr(self, name), getattr(run, name)) for name in names}
        return {name: (here, there) for name, (here, there) in both.items() if here != there}


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRatios:
    """Step time / step time with perfectly even ranks, at least 1: mean, 95th percentile and maximum of the steps."""

    mean: float
    p95: float
    worst: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """How long ranks wait for the slowest rank, in the first epoch of a run over an artifact."""

    run: BalanceRecord  #: what an order for this run would be balanced for
    built: BalanceRecord | None  #: what the packs were balanced for; None if they were not
    num_steps: int  #: whole steps of the epoch
    share_of_run: float  #: fraction of the run's steps (0-1) in that epoch
    as_built: StepRatios  #: ratios with the packs in their present order
    shuffled: StepRatios  #: ratios with the packs in random order
    within_batch: StepRatios  #: ratios if balanced within each step
    across_batches: StepRatios  #: ratios if balanced across the steps of a window

    @property
    def gain(self) -> float:
        """Fraction of the run's compute time (0-1) that the better kind would save."""
        best = min(self.within_batch.mean, self.across_batches.mean)
        return (1 - best / self.as_built.mean) * self.share_of_run

    @property
    def gain_of_one_pass(self) -> float:
        """Fraction of the run's compute time (0-1) that balancing all epochs would save beyond balancing the first."""
        return (1 - self.as_built.mean / self.shuffled.mean) * (1 - self.share_of_run)
