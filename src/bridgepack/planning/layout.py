"""The kinds of GPUs, and how a run is laid out over them: ranks, and memory per GPU."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from bridgepack import geometry
from bridgepack.config.errors import known_names, quote
from bridgepack.errors import ConfigError
from bridgepack.planning.shape import ModelShape
from bridgepack.planning.stages import FloatArray, Loads, Split, loads_of

#: Share of the memory that an estimate may fill, and beyond which it is tight; the rest is for the CUDA context, NCCL,
#: kernels and what the allocator cannot use.
_USABLE, _EASY = 0.94, 0.875


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A kind of GPU in its usual node."""

    name: str
    memory_gb: float  #: 10^9 bytes
    teraflops: float  #: dense bf16
    memory_gb_s: float  #: from its own memory
    link_gb_s: float  #: to the others of its node, in one direction
    network_gb_s: float = 50.0  #: to other nodes, its share
    per_node: int = 8  #: GPUs that `link_gb_s` reaches

    @property
    def budget_gb(self) -> float:
        """Memory that an estimate may fill, in 10^9 bytes."""
        return self.memory_gb * _USABLE

    @property
    def easy_gb(self) -> float:
        """Memory above which an estimate is tight, in 10^9 bytes."""
        return self.memory_gb * _EASY


#: Sources: data sheets of NVIDIA for A100 (SXM), H100 (SXM), H200, HGX B200 and B300, GB200 NVL72 and GB300 NVL72.
#: They give bf16 of Hopper and later with sparsity, halved here: H100 1,979, HGX B200 and B300 36,000 for 8 GPUs, GB200
#: and GB300 NVL72 360,000 for 72. NVLink of both directions is halved too: 600, 900, 1,800 GB/s. Each GPU has a network
#: card of its own: 200 Gb/s in a DGX A100, 400 with Hopper, B200 and GB200 (ConnectX-7), 800 with B300 and GB300
#: (ConnectX-8). Their GB of memory are GiB up to GB200; it is what nvidia-smi reports, 81,559 MiB for an H100.
_GPUS = (
    Gpu(name="a100-40gb", memory_gb=42.9, teraflops=312, memory_gb_s=1555, link_gb_s=300, network_gb_s=25),
    Gpu(name="a100-80gb", memory_gb=85.9, teraflops=312, memory_gb_s=2039, link_gb_s=300, network_gb_s=25),
    Gpu(name="h100-80gb", memory_gb=85.5, teraflops=989, memory_gb_s=3350, link_gb_s=450),
    Gpu(name="h200-141gb", memory_gb=150.8, teraflops=989, memory_gb_s=4800, link_gb_s=450),
    Gpu(name="b200-180gb", memory_gb=192.3, teraflops=2250, memory_gb_s=8000, link_gb_s=900),
    Gpu(name="gb200-186gb", memory_gb=198.7, teraflops=2500, memory_gb_s=8000, link_gb_s=900, per_node=72),
    Gpu(name="b300-288gb", memory_gb=288, teraflops=2250, memory_gb_s=8000, link_gb_s=900, network_gb_s=100),
    Gpu(
        name="gb300-279gb",
        memory_gb=279,
        teraflops=2500,
        memory_gb_s=8000,
        link_gb_s=900,
        network_gb_s=100,
        per_node=72,
    ),
)
DEFAULT_GPU = "h100-80gb"


def gpu_by_name(name: str) -> Gpu:
    """Return a GPU by its name, or by the part of the name before the memory if it is unique.

    Raises:
        ConfigError: there is no such GPU.
    """
    gpus = {gpu.name: gpu for gpu in _GPUS}
    beginning = [gpu for gpu in _GPUS if gpu.name.partition("-")[0] == name.lower()]
    if len(beginning) == 1:
        return beginning[0]
    if name.lower() not in gpus:
        raise ConfigError(f"--gpu is {quote(name)}; {known_names(name.lower(), gpus)}")
    return gpus[name.lower()]


#: Bytes of a token, in hidden sizes: the input of a recomputed layer, and that of the output matrix with its norm.
_INPUT, _OUTPUT_INPUT = 2.0, 4.0
_TENSOR, _CONTEXT, _EXPERT = (tuple(1 << power for power in range(num_powers)) for num_powers in (4, 7, 7))
#: Modules that are worth recomputing together.
_RECOMPUTED = (("mlp", "moe"), ("moe_act",))


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """Bytes of a weight: its own, and those that the ranks of a copy's data parallelism share.

    Source: megatron/bridge/training/utils/theoretical_memory_utils.py of 0.6.2: bf16 weight, fp32 gradient; fp32 weight
    and both moments of Adam.
    """

    own: float = 6.0  #: the weight and its gradient
    shared: float = 12.0  #: states of the optimiser
    frozen: float = 2.0  #: a weight that is not trained


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout of a model over GPUs."""

    num_gpus: int
    tensor: int = 1  #: tensor_model_parallel_size
    pipeline: int = 1  #: pipeline_model_parallel_size
    context: int = 1  #: context_parallel_size
    expert: int = 1  #: expert_model_parallel_size, with expert_tensor_parallel_size 1
    layers: tuple[int, ...] = ()  #: layers of each virtual stage in the model's order; empty for equally many
    recomputes: bool = False  #: whether whole layers are recomputed in the backward pass
    modules: tuple[str, ...] = ()  #: else, modules that are, in the host's names
    splits_sequence: bool = True  #: sequence_parallel, where `tensor` is above 1

    @cached_property
    def data(self) -> int:
        """Copies of the model."""
        return geometry.data_parallel_size(
            world_size=self.num_gpus,
            tensor_model_parallel_size=self.tensor,
            pipeline_model_parallel_size=self.pipeline,
            context_parallel_size=self.context,
        )

    @cached_property
    def virtual(self) -> int:
        """Virtual stages of a pipeline rank; 1 without interleaving."""
        return max(len(self.layers) // self.pipeline, 1)

    @cached_property
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


def memory_of(
    shape: ModelShape,
    layout: Layout,
    *,
    pack_tokens: int,
    num_micro: int,
    is_full: bool = True,
    states: States | None = None,
) -> Memory:
    """Return the memory of the fullest GPU.

    `pack_tokens` are runtime tokens, `num_micro` packs per optimiser step on each copy of the model. `is_full` says
    whether all weights are trained; adapters are small and not counted.
    """
    return StageBytes.of(shape, layout, is_full=is_full, states=states).memory(pack_tokens, num_micro)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageBytes:
    """What the pipeline ranks of a layout keep; arrays of shape [pipeline], float64."""

    layout: Layout
    states: FloatArray  #: weights, gradients and optimiser states
    of_pack: FloatArray  #: for a token of each pack in flight
    of_layer: FloatArray  #: for a token, while it recomputes
    of_embedding: float  #: for a token of each pack in flight, on the first rank
    of_logits: float  #: for a token, on the last rank
    in_flight: FloatArray  #: packs whose activations are kept at a time, of however many

    @classmethod
    def of(
        cls, shape: ModelShape, layout: Layout, *, is_full: bool = True, states: States | None = None
    ) -> "StageBytes":
        """Return it for a model; the arguments are those of `memory_of`."""
        bytes_of = states or States()
        loads = loads_of(shape, layout.pipeline, layout.layers, layout.modules)
        own_bytes, shared_bytes = (bytes_of.own, bytes_of.shared) if is_full else (bytes_of.frozen, 0.0)
        dense = loads.weights / layout.tensor
        dense[0] += shape.embedding / layout.tensor
        if layout.pipeline > 1 or not shape.has_tied_embeddings:
            dense[-1] += shape.embedding / layout.tensor
        sharing = max(layout.data * layout.tensor * layout.context // layout.expert, 1)
        state_bytes = dense * (own_bytes + shared_bytes / (layout.data * layout.context))
        state_bytes += loads.routed / layout.expert * (own_bytes + shared_bytes / sharing)
        of_pack, of_layer = _kept_bytes(loads, layout, shape.hidden_size)
        return cls(
            layout=layout,
            states=state_bytes,
            of_pack=of_pack,
            of_layer=of_layer,
            of_embedding=shape.hidden_size / layout.tensor,
            of_logits=(shape.logit_bytes * shape.vocab_size + _OUTPUT_INPUT * shape.hidden_size) / layout.tensor,
            in_flight=_in_flight(layout),
        )

    def memory(self, pack_tokens: int, num_micro: int) -> Memory:
        """Return the memory of the fullest GPU; the arguments are those of `memory_of`."""
        tokens = pack_tokens / self.layout.context
        activation_bytes = tokens * (self.of_pack * np.minimum(self.in_flight, num_micro) + self.of_layer)
        activation_bytes[0] += tokens * self.of_embedding * min(self.layout.pipeline, num_micro)
        total = self.states + activation_bytes
        logit_bytes = tokens * self.of_logits
        total[-1] += logit_bytes
        fullest = int(total.argmax())
        return Memory(
            states_gb=float(self.states[fullest]) / 1e9,
            activations_gb=float(activation_bytes[fullest]) / 1e9,
            logits_gb=logit_bytes / 1e9 if fullest == self.layout.pipeline - 1 else 0.0,
        )


def _kept_bytes(loads: Loads, layout: Layout, hidden_size: int) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of a token that each pipeline rank keeps: for each pack in flight, and while it recomputes."""
    inputs, split = _INPUT * hidden_size * loads.num_layers, layout.tensor
    input_split = layout.tensor if layout.splits_sequence else 1
    if layout.recomputes:
        unsplit = loads.unsplit / np.maximum(loads.num_layers, 1)
        return inputs / input_split, (loads.largest - unsplit) / split + unsplit / input_split
    return (loads.activations - loads.unsplit) / split + loads.unsplit / input_split, loads.again / split


def _in_flight(layout: Layout) -> FloatArray:
    """Return the packs whose activations each pipeline rank keeps at a time, of enough; shape [pipeline], float64.

    Source: megatron/core/pipeline_parallel/schedules.py of 0.19.2, `get_pp_rank_microbatches`.
    """
    later = np.arange(layout.pipeline - 1, -1, -1, dtype=np.float64)
    if layout.virtual > 1:
        later = (2 * later + (layout.virtual - 1) * layout.pipeline) / layout.virtual
    return later + 1 / layout.virtual


def layouts(
    shape: ModelShape, gpu: Gpu, num_gpus: int, ways: Iterable[Split], *, is_full: bool = True
) -> Iterator[tuple[Layout, Split]]:
    """Yield every layout that is possible for the GPUs and the model's layers, heads and experts, with any memory.

    Tensor parallelism stays in a node. Experts are not split: that is slower than more ranks for them. `ways` are those
    in which the layers are split over stages. Modules are recomputed only where all weights are trained: a frozen
    module that is recomputed can lose the gradients of the adapters before it.
    """
    alone = tuple(dict.fromkeys(part.module for layer in shape.layers for part in layer.kept.parts))
    kinds = [tuple(name for name in names if name in alone) for names in _RECOMPUTED if is_full]
    options = [(True, ()), *((False, names) for names in dict.fromkeys([(), *kinds]))]
    experts = [size for size in _EXPERT if size == 1 or (shape.num_experts and shape.num_experts % size == 0)]
    tensors = [size for size in _TENSOR if shape.num_query_groups % size == 0 and size <= gpu.per_node]
    for way, tensor, context, expert in product(ways, tensors, _CONTEXT, experts):
        if num_gpus % (tensor * way.pipeline * context) == 0 and num_gpus % (expert * way.pipeline) == 0:
            for recomputes, modules in options:
                layout = Layout(
                    num_gpus=num_gpus,
                    tensor=tensor,
                    pipeline=way.pipeline,
                    context=context,
                    expert=expert,
                    layers=way.counts if way.pipeline > 1 else (),
                    recomputes=recomputes,
                    modules=modules,
                )
                yield layout, way
