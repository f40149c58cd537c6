"""Maps global ranks to data-parallel ranks, as the host arranges a run on its GPUs."""

from dataclasses import dataclass

from bridgepack import geometry
from bridgepack.errors import ConfigError


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
    pipeline_before_data: bool = False  #: `dist.use_tp_pp_dp_mapping`; without effect with `dist.use_decentralized_pg`

    def __post_init__(self) -> None:
        """Reject sizes that the host cannot arrange."""
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
    def model_parallel_size(self) -> int:
        """Ranks of one copy of the model."""
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size

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
        rest = global_rank // (self.tensor_model_parallel_size * self.context_parallel_size)
        if self.pipeline_before_data:
            return rest // self.pipeline_model_parallel_size
        return rest % self.data_parallel_size


def require_positive(name: str, value: int) -> None:
    """Refuse anything but an integer above 0.

    Raises:
        ConfigError: the value is not one.
    """
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} is {value!r}; allowed: whole numbers from 1.")
