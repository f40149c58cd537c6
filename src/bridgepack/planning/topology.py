"""A topology for a model whose recipe is not in the catalogue: by an estimate of the memory that it takes."""

from collections.abc import Iterator
from dataclasses import dataclass

from bridgepack import geometry
from bridgepack.errors import ConfigError
from bridgepack.planning.models import ModelSize

#: Memory of one GPU that an estimate may fill, of the 80 GB of an H100; the rest is for logits, kernels and NCCL.
BUDGET_GB = 70.0
#: Tokens of one sequence on one rank; at most this many where whole layers are computed again.
TOKENS_PER_RANK, TOKENS_PER_RANK_RECOMPUTED = 8192, 32768
_TENSOR_SIZES = (1, 2, 4, 8)
_PIPELINE_SIZES = (1, 2, 4, 8, 16)
_EXPERT_SIZES = (1, 2, 4, 8, 16, 32, 64)
_MAX_CONTEXT_SIZE = 64
#: bf16 weights and fp32 gradients; fp32 weights and both moments of Adam, which data-parallel ranks share.
_STATE_BYTES, _SHARED_STATE_BYTES = 6.0, 12.0
_FROZEN_BYTES = 2.0
#: Activations of a token in MB: 34 bytes x hidden size x layers, with hidden size x layers ~ 33,000 x billions^0.7
#: (Llama 3.1 8B 131,072, 70B 655,360). Source: arXiv 2205.05198, section 4, with attention computed in one kernel.
_ACTIVATION_MB, _ACTIVATION_POWER = 1.12, 0.7
_RECOMPUTED_FRACTION = 1 / 12
_LARGEST_CLUSTER = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """How a model is spread over GPUs."""

    tensor: int  #: tensor_model_parallel_size, with sequence_parallel above 1
    pipeline: int  #: pipeline_model_parallel_size
    context: int  #: context_parallel_size
    expert: int  #: expert_model_parallel_size
    recomputes: bool  #: whether whole layers are computed again in the backward pass
    estimated_gb: float  #: memory of one GPU

    @property
    def num_ranks(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def multiple(self) -> int:
        """What every sequence's length has to be a multiple of."""
        return geometry.pad_seq_to_mult(
            context_parallel_size=self.context,
            tensor_model_parallel_size=self.tensor,
            sequence_parallel=self.tensor > 1,
        )


def choose_topology(size: ModelSize, *, is_full: bool, num_gpus: int, seq_length: int) -> Topology:
    """Return the topology with the fewest GPUs to a copy of the model that fits into memory.

    Whole layers are computed again only where nothing fits otherwise.

    Args:
        size: of the model.
        is_full: whether every weight is trained.
        num_gpus: of the run.
        seq_length: runtime tokens of a pack.

    Raises:
        ConfigError: nothing fits, or `seq_length` cannot be shared by the ranks.
    """
    fitting = list(_fitting(size, is_full, num_gpus, seq_length))
    aligned = [one for one in fitting if seq_length % one.multiple == 0]
    if aligned:
        return min(aligned, key=_cost)
    if fitting:
        multiple = min(fitting, key=_cost).multiple
        lower, upper = (seq_length // multiple * multiple, -(-seq_length // multiple) * multiple)
        raise ConfigError(
            f"--seq-length is {seq_length}; allowed: multiples of {multiple}, what the ranks of a sequence share. "
            f"Use {lower or upper} or {upper}."
        )
    raise ConfigError(_does_not_fit(size, is_full, num_gpus, seq_length))


def _fitting(size: ModelSize, is_full: bool, num_gpus: int, seq_length: int) -> Iterator[Topology]:
    for topology in _candidates(size, is_full, num_gpus, seq_length):
        if topology.estimated_gb <= BUDGET_GB:
            yield topology


def _cost(topology: Topology) -> tuple[bool, int, int, int, int]:
    return (topology.recomputes, topology.num_ranks, topology.pipeline, topology.context, topology.expert)


def _candidates(size: ModelSize, is_full: bool, num_gpus: int, seq_length: int) -> Iterator[Topology]:
    """Yield every topology that the GPUs can have; a mixture has no tensor ranks."""
    for recomputes, most_tokens in ((False, TOKENS_PER_RANK), (True, TOKENS_PER_RANK_RECOMPUTED)):
        for tensor in _TENSOR_SIZES if size.is_dense else (1,):
            for pipeline in _PIPELINE_SIZES:
                for context in _context_sizes(seq_length, most_tokens):
                    for expert in (1,) if size.is_dense else _EXPERT_SIZES:
                        sizes = (tensor, pipeline, context, expert)
                        if num_gpus % (tensor * pipeline * context) == 0 and num_gpus % (expert * pipeline) == 0:
                            yield _estimated(size, is_full, num_gpus, seq_length, recomputes, *sizes)


def _context_sizes(seq_length: int, most_tokens: int) -> list[int]:
    sizes = [1 << power for power in range(_MAX_CONTEXT_SIZE.bit_length())]
    return [context for context in sizes if seq_length <= context * most_tokens]


def _estimated(
    size: ModelSize,
    is_full: bool,
    num_gpus: int,
    seq_length: int,
    recomputes: bool,
    tensor: int,
    pipeline: int,
    context: int,
    expert: int,
) -> Topology:
    """Return a topology with the memory it takes; half of a mixture's active parameters are outside its experts."""
    outside = size.billions if size.is_dense else size.active_billions / 2
    on_gpu = outside / (tensor * pipeline) + (size.billions - outside) / (expert * pipeline)
    states = (
        on_gpu * _STATE_BYTES + size.billions * _SHARED_STATE_BYTES / num_gpus if is_full else on_gpu * _FROZEN_BYTES
    )
    tokens = seq_length / context
    activations = _ACTIVATION_MB * size.active_billions**_ACTIVATION_POWER * tokens / tensor / 1000
    return Topology(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        recomputes=recomputes,
        estimated_gb=states + activations * (_RECOMPUTED_FRACTION if recomputes else 1),
    )


def _does_not_fit(size: ModelSize, is_full: bool, num_gpus: int, seq_length: int) -> str:
    enough = num_gpus
    while enough <= _LARGEST_CLUSTER and not any(_fitting(size, is_full, enough, seq_length)):
        enough = 1 << enough.bit_length()
    what = "training every weight" if is_full else "adapters"
    allowed = f"at least {enough}" if enough <= _LARGEST_CLUSTER else "another --model or --seq-length"
    advice = (
        "Use more, a shorter --seq-length, or --method lora." if is_full else "Use more, or a shorter --seq-length."
    )
    return (
        f"--gpus is {num_gpus}; {what} of {size.billions:g} billion parameters at {seq_length} tokens does not fit "
        f"into {BUDGET_GB:g} GB of each by estimate; allowed: {allowed}. {advice}"
    )
