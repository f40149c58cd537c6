"""How sequences are packed, the parallel topology, and batch sizes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bridgepack import geometry
from bridgepack.config.section import Flag, Section

PositiveInt = Annotated[int, Field(ge=1, strict=True)]
#: cu_seqlens are int32 (megatron-bridge 0.6.2, data/packing/gpt_sft.py), so no pack can be longer.
PackSize = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
#: 500 times the value of a model with 400 billion parameters; costs of a step's packs are summed as int64.
TokenCost = Annotated[int, Field(ge=1, le=100_000_000, strict=True)]


class BalanceConfig(Section):
    """Order of packs that shortens the waits between ranks; valid for one topology, batch size, loader and seed."""

    kind: Literal["none", "within_batch", "across_batches"] = "none"
    """`within_batch` moves packs between the ranks of a step; every step keeps its packs. `across_batches` also moves
    them between the steps of a window, which helps runs with one pack per rank. Only the first epoch is balanced,
    because the loader reshuffles every epoch."""
    window_batches: Annotated[int, Field(ge=2, strict=True)] = 16
    """Steps per window of `across_batches`."""
    seed: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = 1234
    """Seed of the order of steps within a window."""
    token_cost: TokenCost | None = None
    """Cost of a token, relative to the cost of one attended token pair; by default from the model's shape, e.g. 51000
    for a dense model of 8 billion parameters."""


class PackingConfig(Section):
    """Packing."""

    mode: Literal["offline", "in_batch", "none"] = "offline"
    """`offline`: packs are built before the run; `in_batch`: Megatron-Bridge packs the rows of each micro batch, for
    vision-language models and data read from the hub; `none`: one sequence per row."""
    packed_sequence_size: PackSize
    """Maximum runtime tokens of a pack; equal to the model's and the dataset's `seq_length` in Megatron-Bridge."""
    max_sequence_length: PackSize | None = None
    """Maximum runtime tokens of one sequence (stored tokens - 1); by default `packed_sequence_size`."""
    pad_seq_to_mult: PositiveInt | None = None
    """Every sequence's runtime length is padded to a multiple of this; by default derived from the topology."""
    algorithm: Literal[
        "best_fit_decreasing", "equal_cost", "first_fit_decreasing", "first_fit_shuffle", "sequential"
    ] = "best_fit_decreasing"
    """`first_fit_shuffle` is Megatron-Bridge's own; the decreasing ones need fewer packs. `equal_cost` gives every pack
    the same attention cost, so that ranks do not wait for each other; it needs at most 0.1% more packs than best fit.
    `sequential` keeps the row order, within and across packs, and needs more packs."""
    max_sequences_per_pack: PositiveInt | None = None
    """Maximum sequences per pack; no limit by default. A limit helps CUDA graphs and bounds per-sequence overhead."""
    seed: Annotated[int, Field(ge=0, lt=2**32, strict=True)] = 1234
    """Seed of all random choices of the build."""
    balance: BalanceConfig = BalanceConfig()
    """Order of the packs."""
    pad_cu_seqlens: Flag = False
    """Megatron-Bridge pads cu_seqlens to one shape, from the artifact's metadata; for CUDA graphs with attention."""

    @model_validator(mode="after")
    def _check_max_sequence_length(self) -> Self:
        longest = self.max_sequence_length
        if longest is not None and longest > self.packed_sequence_size:
            raise ValueError(
                f"max_sequence_length is {longest}; allowed: 1 to packed_sequence_size, {self.packed_sequence_size}. "
                "Lower it or raise packed_sequence_size."
            )
        return self


class ParallelismConfig(Section):
    """How the model is distributed over GPUs; sizes count ranks."""

    tensor_model_parallel_size: PositiveInt = 1
    """Ranks that share each layer's weights."""
    pipeline_model_parallel_size: PositiveInt = 1
    """Pipeline stages."""
    context_parallel_size: PositiveInt = 1
    """Ranks that share each sequence."""
    virtual_pipeline_model_parallel_size: PositiveInt | None = None
    """Chunks of layers per pipeline stage, for interleaving."""
    cp_comm_type: Literal["p2p", "a2a", "all_gather", "a2a+p2p"] | None = None
    """How context-parallel ranks exchange keys and values; by default as in the base recipe, else `p2p` (ring)."""
    hierarchical_context_parallel_sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=2)] | None = None
    """Sizes of the levels of `a2a+p2p`, innermost first; their product is `context_parallel_size`."""
    eval_context_parallel_size: PositiveInt | None = None
    """Context-parallel size for evaluation, if it differs from training."""
    expert_model_parallel_size: PositiveInt = 1
    """Ranks that share the experts."""
    expert_tensor_parallel_size: PositiveInt | None = None
    """Ranks that share each expert's weights; by default 1 with expert parallelism, else as
    `tensor_model_parallel_size`."""
    num_gpus: PositiveInt | None = None
    """GPUs of the run; without it, rules on data parallelism need `check --world-size`."""
    sequence_parallel: Flag = False
    """Split activations along the sequence over the tensor-parallel ranks; without effect if there is one."""

    @property
    def ranks_of_copy(self) -> int:
        """Ranks that share one copy of the model."""
        return geometry.model_parallel_size(
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            pipeline_model_parallel_size=self.pipeline_model_parallel_size,
            context_parallel_size=self.context_parallel_size,
        )

    @property
    def multiple(self) -> int:
        """Every sequence's runtime length must be a multiple of this."""
        return geometry.pad_seq_to_mult(
            context_parallel_size=self.context_parallel_size,
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            sequence_parallel=self.sequence_parallel,
            eval_context_parallel_size=self.eval_context_parallel_size,
        )


class BatchConfig(Section):
    """Batch sizes; with offline packing they count packs."""

    micro_batch_size: PositiveInt = 1
    """Packs per forward pass on one data-parallel rank; offline packing needs 1."""
    global_batch_size: PositiveInt = 128
    """Packs per optimiser step."""
    tokens_per_step: PositiveInt | None = None
    """Token slots per optimiser step, instead of `global_batch_size`; rounded to the nearest number of packs that
    divides evenly over the data-parallel ranks."""
    eval_micro_batch_size: PositiveInt = 1
    """Packs per evaluation forward pass on one data-parallel rank; offline packing needs 1."""
    eval_global_batch_size: PositiveInt | None = None
    """Packs per evaluation step; by default as for training. At most the number of validation packs."""

    @model_validator(mode="after")
    def _check_divisible(self) -> Self:
        if self.tokens_per_step is None and self.global_batch_size % self.micro_batch_size:
            raise ValueError(
                f"global_batch_size is {self.global_batch_size}; it must be a multiple of micro_batch_size, "
                f"{self.micro_batch_size}. Set micro_batch_size to 1."
            )
        return self
