"""Settings that determine the order of packs, and the schedule of evaluations."""

from dataclasses import dataclass
from typing import Literal

from bridgepack import geometry
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease, release_of
from bridgepack.records.messages import say, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Arrangement of a run's ranks.

    From the innermost: tensor, context, data, pipeline; with `pipeline_before_data`, data is the outermost. Expert
    parallelism only regroups ranks and does not affect packs.

    Source: megatron-bridge 0.3.0 to 0.6.2, training/initialize.py (`order` of initialize_model_parallel, and
    _create_pg_collection); megatron-core 0.19.2, core/parallel_state.py (RankGenerator).

    Raises:
        ConfigError: a size is below 1, or the world size is not a multiple of the model-parallel size.
    """

    world_size: int
    tensor_model_parallel_size: int = 1  #: ranks that share each layer's weights
    pipeline_model_parallel_size: int = 1
    context_parallel_size: int = 1  #: ranks that share each sequence
    sequence_parallel: bool = False  #: whether tensor-parallel ranks share the activations, too
    pipeline_before_data: bool = False  #: `dist.use_tp_pp_dp_mapping`; without effect with `dist.use_decentralized_pg`

    def __post_init__(self) -> None:
        for name in ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"):
            require_positive(name, getattr(self, name))
        require_positive("context_parallel_size", self.context_parallel_size)
        if self.data_parallel_size == 0:
            raise ConfigError(
                f"world_size is {self.world_size}; allowed: multiples of tensor x pipeline x context parallelism, "
                f"{self.model_parallel_size}. Set it to "
                f"{geometry.ceil_to_multiple(self.world_size, self.model_parallel_size)}."
            )

    @property
    def title(self) -> str:
        """E.g. `CP 2 + TP 2`; `one rank` where nothing is split."""
        sizes = {
            "CP": self.context_parallel_size,
            "TP": self.tensor_model_parallel_size,
            "PP": self.pipeline_model_parallel_size,
            "DP": self.data_parallel_size,
        }
        return " + ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1) or "one rank"

    @property
    def model_parallel_size(self) -> int:
        """Ranks of one copy of the model."""
        return geometry.model_parallel_size(
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            pipeline_model_parallel_size=self.pipeline_model_parallel_size,
            context_parallel_size=self.context_parallel_size,
        )

    @property
    def data_parallel_size(self) -> int:
        """Copies of the model."""
        return geometry.data_parallel_size(
            world_size=self.world_size,
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            pipeline_model_parallel_size=self.pipeline_model_parallel_size,
            context_parallel_size=self.context_parallel_size,
        )

    def data_parallel_rank_of(self, global_rank: int) -> int:
        """Return the data-parallel rank of a global rank, which decides which packs it gets.

        Example: world 16, TP 2, PP 2, CP 2 -> rank 13 is tensor 1, context 0, data 1, pipeline 1, so 1.

        Raises:
            ConfigError: the rank does not exist.
        """
        if not 0 <= global_rank < self.world_size:
            raise ConfigError(f"rank is {global_rank}; allowed: 0 to {self.world_size - 1}, the run's ranks.")
        group = global_rank // (self.tensor_model_parallel_size * self.context_parallel_size)
        if self.pipeline_before_data:
            return group // self.pipeline_model_parallel_size
        return group % self.data_parallel_size


def require_positive(name: str, value: int) -> None:
    """Refuse anything but an integer above 0; raises ConfigError if the value is not one."""
    if type(value) is not int or value < 1:
        field = setting(name) if "." in name else name
        raise ConfigError(say("{field} is {value!r}; allowed: whole numbers from 1.", field=field, value=value))


Loader = Literal["batch", "single", "cyclic"]
LOADERS: tuple[Loader, ...] = ("batch", "single", "cyclic")
_MAX_NUMPY_SEED = 2**32 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySettings:
    """Settings of one split's loader. The order of packs depends on nothing else.

    Raises:
        ConfigError: values with which the host does not get to its first step.
    """

    version: str
    num_packs: int
    topology: Topology  #: of training, or of evaluation where that has another context parallelism
    micro_batch_size: int  #: packs per forward on one data-parallel rank
    global_batch_size: int
    loader: Loader = "batch"  #: `dataset.dataloader_type`
    seed: int = 1234  #: `dataset.seed`
    drop_last: bool = True  #: whether packs that fill no global batch are left out
    #: `dataset.data_sharding`: each data-parallel rank draws from its own part; for `cyclic`
    data_sharding: bool = True
    max_samples: int | None = None  #: `dataset.max_train_samples`, counted in packs; None for every pack once per epoch
    is_evaluation: bool = False  #: whether this is the loader of evaluation
    num_steps: int | None = None  #: steps of the run, for evaluation: batches; None where the loader decides
    resume_step: int = 0  #: steps that the loaded checkpoint had done; 0 for a run from the start
    #: packs that it had counted; None for what `resume_step` steps with these settings count
    consumed_packs: int | None = None

    def __post_init__(self) -> None:
        release_of(self.version)
        for name in ("num_packs", "micro_batch_size", "global_batch_size"):
            require_positive(name, getattr(self, name))
        for name in ("max_samples", "num_steps"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))
        for name in ("resume_step", "consumed_packs"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ConfigError(f"{name} is {value!r}; allowed: whole numbers from 0.")
        if self.loader not in LOADERS:
            raise ConfigError(
                say(
                    "{dataset.dataloader_type} is {loader!r}; allowed: {loaders}. An external loader has its own "
                    "order, which bridgepack does not know.",
                    loader=self.loader,
                    loaders=", ".join(LOADERS),
                )
            )
        if not 0 <= self.seed <= _MAX_NUMPY_SEED:
            template = "{dataset.seed} is {seed}; allowed: 0 to {most}, NumPy's seeds."
            raise ConfigError(say(template, seed=self.seed, most=_MAX_NUMPY_SEED))
        self._check_batches()

    @property
    def host(self) -> HostRelease:
        """The release of Megatron-Bridge that `version` belongs to."""
        return release_of(self.version)

    @property
    def num_samples(self) -> int:
        """Length of the host's dataset: the number of packs, or `max_samples`."""
        return self.num_packs if self.max_samples is None else self.max_samples

    @property
    def packs_per_pass(self) -> int:
        """Packs that all data-parallel ranks take together at a time."""
        return self.micro_batch_size * self.topology.data_parallel_size

    def _check_batches(self) -> None:
        if self.global_batch_size % self.packs_per_pass:
            unit = (
                f"micro_batch_size x data-parallel size, {self.micro_batch_size} x {self.topology.data_parallel_size}"
            )
            template = "{train.global_batch_size} is {size}; allowed: multiples of {unit}."
            raise ConfigError(say(template, size=self.global_batch_size, unit=unit))
        if self.max_samples is not None and self.num_packs == 1 and self.max_samples == 1:
            raise ConfigError(
                say(
                    "{dataset.max_train_samples} is 1 with one pack; Megatron-Bridge stops (IndexError, a sample "
                    "mapping without dimensions). Set it to null."
                )
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSchedule:
    """Evaluations of a run; batches count over the whole run, from 1, because the loader does not restart.

    Source: megatron-bridge 0.6.2, training/train.py (after consumed_train_samples), training/eval.py
    (consumed_valid_samples), training/pretrain.py (evaluation after training).
    """

    eval_interval: int | None  #: steps between evaluations; None for none during training
    eval_iters: int
    start_eval_at_iter: int | None = None  #: first step after which evaluation may happen; None for any
    num_steps: int | None = None  #: steps of the run; None if unknown
    skips_training: bool = False

    def batches_after(self, step: int) -> range:
        """Return the batches of the evaluation right after a step; empty if there is none.

        Example: every 10 steps 4 batches -> after step 20: 5, 6, 7, 8.
        """
        return range(self.batches_until(step - 1) + 1, self.batches_until(step) + 1)

    def batches_until(self, step: int) -> int:
        """Return the number of batches of all evaluations up to a step, including the one right after it."""
        if self.skips_training or not self.eval_interval or self.eval_iters < 1:
            return 0
        first = max(self.start_eval_at_iter or 1, 1)
        num_before_first = (first - 1) // self.eval_interval
        return max(step // self.eval_interval - num_before_first, 0) * self.eval_iters

    def final_batches(self) -> range:
        """Return the batches of the evaluation after training; empty if the end is unknown."""
        if self.num_steps is None or self.eval_iters < 1:
            return range(1, 1)
        num_train_batches = self.batches_until(self.num_steps)
        return range(num_train_batches + 1, num_train_batches + self.eval_iters + 1)
