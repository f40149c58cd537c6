"""The kinds of GPUs, and how a run is laid out over them: ranks, and memory per GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from bridgepack import geometry
from bridgepack.config.errors import known_names, shown
from bridgepack.errors import ConfigError
from bridgepack.planning.shape import ModelShape

#: Share of the memory that an estimate may fill; the rest is for kernels, NCCL and allocator overhead.
_USABLE = 0.875


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A kind of GPU in its usual node."""

    name: str
    memory_gb: float  #: 10^9 bytes
    teraflops: float  #: dense bf16
    link_gb_s: float  #: to the others of its node, in one direction
    network_gb_s: float = 50.0  #: to other nodes, its share
    per_node: int = 8  #: GPUs that `link_gb_s` reaches

    @property
    def budget_gb(self) -> float:
        """Memory that an estimate may fill, in 10^9 bytes."""
        return self.memory_gb * _USABLE


#: Sources: data sheets of NVIDIA for A100 (SXM), H100 (SXM), H200, HGX B200 and B300, GB200 NVL72 and GB300 NVL72.
#: They give bf16 of Hopper and later with sparsity, halved here: H100 1,979, HGX B200 and B300 36,000 for 8 GPUs, GB200
#: and GB300 NVL72 360,000 for 72. NVLink of both directions is halved too: 600, 900, 1,800 GB/s. Each GPU has a network
#: card of its own: 200 Gb/s in a DGX A100, 400 with Hopper, B200 and GB200 (ConnectX-7), 800 with B300 and GB300
#: (ConnectX-8).
_GPUS = (
    Gpu(name="a100-40gb", memory_gb=40, teraflops=312, link_gb_s=300, network_gb_s=25),
    Gpu(name="a100-80gb", memory_gb=80, teraflops=312, link_gb_s=300, network_gb_s=25),
    Gpu(name="h100-80gb", memory_gb=80, teraflops=989, link_gb_s=450),
    Gpu(name="h200-141gb", memory_gb=141, teraflops=989, link_gb_s=450),
    Gpu(name="b200-180gb", memory_gb=180, teraflops=2250, link_gb_s=900),
    Gpu(name="gb200-186gb", memory_gb=186, teraflops=2500, link_gb_s=900, per_node=72),
    Gpu(name="b300-288gb", memory_gb=288, teraflops=2250, link_gb_s=900, network_gb_s=100),
    Gpu(name="gb300-279gb", memory_gb=279, teraflops=2500, link_gb_s=900, network_gb_s=100, per_node=72),
)
DEFAULT_GPU = "h100-80gb"


def gpu_named(name: str) -> Gpu:
    """Return a GPU by its name, or by the part of the name before the memory if it is unique.

    Raises:
        ConfigError: there is no such GPU.
    """
    known = {gpu.name: gpu for gpu in _GPUS}
    beginning = [gpu for gpu in _GPUS if gpu.name.partition("-")[0] == name.lower()]
    if len(beginning) == 1:
        return beginning[0]
    if name.lower() not in known:
        raise ConfigError(f"--gpu is {shown(name)}; {known_names(name.lower(), known)}")
    return known[name.lower()]


#: Bytes of a weight: bf16 weight and fp32 gradient; fp32 weight and both moments of Adam, which the ranks of a copy's
#: data parallelism share. Source: megatron/bridge/training/utils/theoretical_memory_utils.py of 0.6.2.
_STATE, _SHARED_STATE, _FROZEN = 6.0, 12.0, 2.0
#: Bytes of a token in a layer: 18 x hidden size and 4 x numbers inside the feed-forward part. Source: as above, after
#: arXiv 2205.05198, table 2: sequence parallelism, the inside of attention computed again.
_LAYER, _FEED_FORWARD = 18.0, 4.0
#: Of those, what tensor-parallel ranks do not split without sequence parallelism: inputs of norms and of both parts.
_UNSPLIT = 8.0
#: A recomputed layer keeps its input in bf16.
_KEPT = 2.0
#: Bytes of a logit: bf16, and fp32 in the loss. The host's report has the latter alone.
_LOGIT = 6.0
_TENSOR, _PIPELINE, _CONTEXT, _EXPERT = (tuple(1 << power for power in range(most)) for most in (4, 5, 7, 7))


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A layout of a model over GPUs."""

    num_gpus: int
    tensor: int = 1  #: tensor_model_parallel_size
    pipeline: int = 1  #: pipeline_model_parallel_size
    context: int = 1  #: context_parallel_size
    expert: int = 1  #: expert_model_parallel_size, with expert_tensor_parallel_size 1
    recomputes: bool = False  #: whether whole layers are recomputed in the backward pass
    splits_sequence: bool = True  #: sequence_parallel, where `tensor` is above 1

    @property
    def data(self) -> int:
        """Copies of the model."""
        return self.num_gpus // (self.tensor * self.pipeline * self.context)

    @property
    def multiple(self) -> int:
        """Required multiple of every sequence's length."""
        return geometry.pad_seq_to_mult(
            context_parallel_size=self.context,
            tensor_model_parallel_size=self.tensor,
            sequence_parallel=self.tensor > 1 and self.splits_sequence,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Estimated memory of the fullest GPU, in 10^9 bytes."""

    states_gb: float  #: weights, gradients and optimiser states
    activations_gb: float  #: activations of the packs in flight
    logits_gb: float  #: logits over the vocabulary, and the loss

    @property
    def total_gb(self) -> float:
        """The sum."""
        return self.states_gb + self.activations_gb + self.logits_gb


def memory_of(shape: ModelShape, layout: Layout, *, pack_tokens: int, num_micro: int, is_full: bool = True) -> Memory:
    """Return the memory of the fullest GPU.

    `pack_tokens` are runtime tokens, `num_micro` packs per optimiser step on each copy of the model. `is_full` says
    whether all weights are trained; adapters are small and not counted.
    """
    ranks, stages = layout.tensor * layout.context, layout.pipeline
    matrices = 2 if stages == 1 and not shape.has_tied_embeddings else 1
    dense = shape.others / (stages * layout.tensor) + shape.embedding * matrices / layout.tensor
    routed = shape.routed / (stages * layout.expert)
    if is_full:
        sharing = max(layout.data * ranks // layout.expert, 1)
        states = dense * (_STATE + _SHARED_STATE / (layout.data * layout.context))
        states += routed * (_STATE + _SHARED_STATE / sharing)
    else:
        states = (dense + routed) * _FROZEN
    hidden, tokens = shape.hidden_size, pack_tokens / ranks
    whole_rows = 0.0 if layout.splits_sequence else _UNSPLIT * hidden * (layout.tensor - 1)
    layers = [_LAYER * hidden + whole_rows + _FEED_FORWARD * layer.activation_ffn for layer in shape.layers]
    whole = max(layers) + len(layers) * _KEPT * hidden if layout.recomputes else sum(layers)
    in_flight = min(1.0, num_micro / stages)
    activations = tokens * (whole * in_flight + hidden * min(stages, num_micro))
    logits = tokens * (_LOGIT * shape.vocab_size + _FEED_FORWARD * hidden)
    if stages > 1:  # the last stage has logits and one pack in flight, the first more packs and none
        last = tokens * whole / stages + logits
        activations, logits = (activations, 0.0) if activations > last else (last - logits, logits)
    return Memory(states_gb=states / 1e9, activations_gb=activations / 1e9, logits_gb=logits / 1e9)


def layouts(shape: ModelShape, gpu: Gpu, num_gpus: int, *, own_stages: int = 1) -> Iterator[Layout]:
    """Yield every layout that is possible for the GPUs and the model's layers, heads and experts, with any memory.

    Tensor parallelism stays in a node. Experts are not split: that is slower than more ranks for them. Stages have
    equally many layers, but for a recipe's own number of them, `own_stages`, for which its base may lay out others.
    """
    experts = [size for size in _EXPERT if size == 1 or (shape.num_experts and shape.num_experts % size == 0)]
    tensors = [size for size in _TENSOR if shape.num_query_groups % size == 0 and size <= gpu.per_node]
    stages = [size for size in _PIPELINE if len(shape.layers) % size == 0 or size == own_stages]
    for tensor, pipeline, context, expert in product(tensors, stages, _CONTEXT, experts):
        if num_gpus % (tensor * pipeline * context) == 0 and num_gpus % (expert * pipeline) == 0:
            for recomputes in (False, True):
                yield Layout(
                    num_gpus=num_gpus,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    expert=expert,
                    recomputes=recomputes,
                )
