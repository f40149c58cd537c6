"""Estimates the seconds of an optimiser step of a layout: arithmetic, communication, pipeline bubbles, waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.packing.balance import balanced_order, straggler_ratios
from bridgepack.geometry import IntArray
from bridgepack.planning.layout import Gpu, Layout
from bridgepack.planning.lengths import PackedLengths
from bridgepack.planning.shape import ModelShape
from bridgepack.planning.stages import ROUTED, loads_of
from bridgepack.planning.sums import Sums, sums_of
from bridgepack.records import TRAIN
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import ReplaySettings

#: Tokens of queries and of keys that attention takes at a time. Source: arXiv 2407.08608, section 3 (128 x 128).
_TILE = 128
#: Maximum steps that waiting is estimated from.
_MAX_STEPS = 24
#: Integer cost of the mean pack.
_UNITS = 1 << 20
#: Of the experts of a GPU each takes launches of its own: two matrices, forward and for both gradients. Seconds of one.
#: Source: transformer_engine/common/gemm/cublaslt_gemm.cu, `multi_stream_cublas_gemm`.
_EXPERT_MATRICES, _LAUNCH_S = 2, 5e-6
#: Bytes that are read and written for each weight in a micro batch: bf16 weights forward and backward, and, where they
#: are trained, sums of fp32 gradients.
_READ, _SUMMED = 4.0, 8.0
#: Exchanges of a layer, forward and backward: of activations over tensor ranks (gather and scatter around attention and
#: the feed-forward part), of keys and values around context ranks, of tokens to experts and back.
#: Source: arXiv 2205.05198, section 4.2; megatron/core/extensions/transformer_engine.py (ring of context ranks).
_TENSOR_EXCHANGES, _CONTEXT_EXCHANGES, _EXPERT_EXCHANGES = 8, 3, 4
_BF16 = 2
#: Latency of a message between GPUs, in seconds.
_MESSAGE_S = 2e-5
#: Bytes that data-parallel ranks exchange for each weight in a step: fp32 gradients, then bf16 weights.
_GRADIENT_BYTES = 6.0
#: Share of a micro batch's arithmetic that hides the exchange of gradients: the backward pass.
_BACKWARD = 2 / 3
#: Forward and backward pass of a multiply-add: 2 and 4 operations.
_OPERATIONS = 6.0

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """FLOPs of a forward and a backward pass, with all weights trained and no recomputation.

    A sequence of n runtime tokens costs `per_token * n + per_square * n**2`, and for each (window, operations) of
    `windows`: operations * (n**2 - max(n - window, 0)**2), which grows by token only, once n is past the window.
    Causal attention is counted as half of its square.

    Source: `num_floating_point_operations` of megatron/bridge/training/utils/flop_utils.py, 0.6.2.
    """

    per_token: float  #: FLOPs per runtime token, including padding
    per_square: float  #: FLOPs per squared runtime token of a sequence, for layers without a window
    windows: tuple[tuple[int, float], ...] = ()  #: (window in tokens, FLOPs per squared token)

    def sequence_flops(self, runtime_lengths: npt.ArrayLike) -> FloatArray:
        """Return the FLOPs of each sequence; float64, same shape as `runtime_lengths`."""
        lengths: FloatArray = np.asarray(runtime_lengths, dtype=np.float64)
        cost = self.per_token * lengths + self.per_square * lengths**2
        for window, operations in self.windows:
            cost += operations * (lengths**2 - np.maximum(lengths - window, 0) ** 2)
        return cost


@lru_cache(maxsize=256)
def cost_of(shape: ModelShape) -> StepCost:
    """Return the FLOPs of a model with a shape."""
    weights = sum(layer.weights + layer.routed_used + layer.scan for layer in shape.layers)
    squares: defaultdict[int, float] = defaultdict(float)  # 0 for no window
    for layer in shape.layers:
        squares[layer.window or 0] += _OPERATIONS * layer.width
    return StepCost(
        per_token=_OPERATIONS * (weights + shape.embedding),
        per_square=squares.pop(0, 0.0),
        windows=tuple(sorted(squares.items())),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The two constants of the estimate: shares of the GPU's peak (0-1) that arithmetic reaches."""

    linear: float = 0.55  #: for weight matrices
    attention: float = 0.45  #: for attention


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work per pack; arrays of shape [num_packs], float64."""

    tokens: FloatArray  #: runtime tokens, including alignment padding
    attention: FloatArray  #: FLOPs of attention, forward and backward

    @classmethod
    def from_packs(cls, packs: PackedLengths, cost: StepCost, context: int = 1) -> Work:
        """Return the work of packs for a model cost and a number of context-parallel ranks.

        Attention is computed in whole tiles of tokens for each part of a sequence.
        """
        lengths = np.concatenate([np.empty(0), *packs.packs])
        tile = _TILE * (2 * context if context > 1 else 1)
        tile_lengths = np.ceil(lengths / tile) * tile
        squares = cost.sequence_flops(tile_lengths) - cost.per_token * tile_lengths
        starts = np.cumsum([0, *(len(pack) for pack in packs.packs)])[:-1]
        return cls(tokens=np.add.reduceat(lengths, starts), attention=np.add.reduceat(squares, starts))

    @property
    def mean(self) -> Work:
        """The work of the mean pack."""
        return Work(tokens=self.tokens.mean(keepdims=True), attention=self.attention.mean(keepdims=True))


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The computation of a layout's steps, and its speed."""

    shape: ModelShape
    gpu: Gpu
    layout: Layout
    is_full: bool  #: whether every weight is trained
    speed: Speed

    @cached_property
    def cost(self) -> StepCost:
        """FLOPs of the model."""
        return cost_of(self.shape)

    @cached_property
    def _sums(self) -> Sums:
        """Sums over the layers of the model."""
        return sums_of(self.shape, self.layout.modules)

    @cached_property
    def _per_second(self) -> float:
        """Peak FLOPs per second of one copy of the model."""
        layout = self.layout
        return self.gpu.teraflops * 1e12 * layout.tensor * layout.pipeline * layout.context

    def linear_s[T: (float, FloatArray)](self, tokens: T) -> T:
        """Return the seconds of the operations that grow linearly with tokens, of one pack or of each."""
        expert_flops = _OPERATIONS * self._sums.routed_used
        passes, speed = self._passes / 3, self._per_second * self.speed.linear
        of_experts = _at_least(
            self._least_of_experts_s if expert_flops else 0.0, tokens * expert_flops / ROUTED * passes / speed
        )
        of_others = _at_least(
            self._moved_s(self._sums.others / self.layout.tensor),
            tokens * (self.cost.per_token - expert_flops) * passes / speed,
        )
        again = self._sums.recomputed * _OPERATIONS / 3
        return of_others + of_experts + tokens * again / speed

    @property
    def _passes(self) -> int:
        """Passes over the weights: forward, for the gradients of inputs and of weights, and recomputed."""
        return (2 if self.is_full else 1) + 1 + self.layout.recomputes

    @cached_property
    def _least_of_experts_s(self) -> float:
        """Seconds that a pack's pass over the experts of a GPU takes with however few tokens: launches, or memory."""
        layout, shape = self.layout, self.shape
        num_layers = self._sums.num_mixtures / layout.pipeline
        launches = num_layers * shape.num_experts / layout.expert * _EXPERT_MATRICES * self._passes
        return max(launches * _LAUNCH_S, self._moved_s(self._sums.routed / layout.expert))

    def _moved_s(self, weights: float) -> float:
        """Seconds in which a GPU reads its part of the stages' weights, and adds to their gradients."""
        return weights / self.layout.pipeline * (_READ + _SUMMED * self.is_full) / self.gpu.memory_gb_s / 1e9

    def attention_s[T: (float, FloatArray)](self, operations: T) -> T:
        """Return the seconds of attention from its FLOPs, of one pack or of each."""
        return operations * (3 + self.layout.recomputes) / 3 / self._per_second / self.speed.attention

    def exchange_s[T: (float, FloatArray)](self, tokens: T) -> T:
        """Return the seconds of exchanging activations between ranks, of one pack or of each."""
        layout, shape = self.layout, self.shape
        width, groups = shape.hidden_size, shape.num_query_groups / shape.num_attention_heads
        num_layers = len(shape.layers)
        tensor = _TENSOR_EXCHANGES * num_layers * width * _share_of_others(layout.tensor) / self._link(layout.tensor)
        ranks = layout.tensor * layout.context
        context = (
            _CONTEXT_EXCHANGES * num_layers * 2 * width * groups * _share_of_others(layout.context) / self._link(ranks)
        )
        again = ("moe" in layout.modules) / 3  # tokens are sent once more
        expert = _EXPERT_EXCHANGES * (1 + again) * width * self._sent_copies(self._sums.num_used)
        messages = _TENSOR_EXCHANGES * (layout.tensor > 1) + _EXPERT_EXCHANGES * (layout.expert > 1)
        messages = (messages + _CONTEXT_EXCHANGES * (layout.context - 1)) * num_layers
        per_rank = tokens / layout.context * _BF16 / 1e9
        passes = (3 + layout.recomputes) / 3
        bytes_s = per_rank * (tensor + (context + expert) / layout.tensor)
        between = per_rank * width / layout.tensor / self._link(layout.num_gpus) + _MESSAGE_S
        between *= 2 * layout.virtual  # activations there, gradients back
        return (bytes_s + messages * _MESSAGE_S) * passes / layout.pipeline + between * (layout.pipeline > 1)

    def _sent_copies(self, num_experts: float) -> float:
        """Return the copies of a token that go to other ranks of its experts, each divided by the GB/s of its link.

        `num_experts` are experts of a token in all layers. Both links work at a time. Some dispatchers send a token to
        each node once, and copy it there.
        """
        ranks, in_node = self.layout.expert, min(self.layout.expert, self.gpu.per_node)
        num_nodes, num_layers = ranks / in_node, self._sums.num_mixtures
        away = num_experts * (1 - 1 / num_nodes)
        if self.shape.sends_once and num_nodes > 1:
            away = num_layers * (num_nodes - 1) * (1 - (1 - 1 / num_nodes) ** (num_experts / num_layers))
        return max(num_experts * _share_of_others(in_node) / self.gpu.link_gb_s, away / self.gpu.network_gb_s)

    def gradients_s(self) -> float:
        """Return the seconds of exchanging gradients and weights between data-parallel ranks."""
        layout, shape = self.layout, self.shape
        ranks = layout.data * layout.context
        if not self.is_full or ranks == 1:
            return 0.0
        weights = (self._sums.others + 2 * shape.embedding) / (layout.tensor * layout.pipeline)
        weights += self._sums.routed / (layout.expert * layout.pipeline)
        per_node = max(self.gpu.per_node // layout.tensor, 1)  # each has its own network card
        network = min(self.gpu.network_gb_s * per_node, self.gpu.link_gb_s)
        speed = self.gpu.link_gb_s if layout.num_gpus <= self.gpu.per_node else network
        return weights * _GRADIENT_BYTES * _share_of_others(ranks) / speed / 1e9

    def _link(self, ranks: int) -> float:
        return self.gpu.link_gb_s if ranks <= self.gpu.per_node else self.gpu.network_gb_s

    def packs_s(self, work: Work) -> FloatArray:
        """Return the seconds of a forward and a backward pass of each pack on all ranks of a copy."""
        return self.linear_s(work.tokens) + self.attention_s(work.attention) + self.exchange_s(work.tokens)

    def imbalance(self, work: Work) -> float:
        """Return the time of the slowest pipeline rank over the mean, for a mean pack; the last has the loss."""
        linear, attention = float(self.linear_s(work.tokens).mean()), float(self.attention_s(work.attention).mean())
        return self._imbalance(linear, attention, float(self.exchange_s(work.tokens).mean()))

    def _imbalance(self, linear: float, attention: float, exchange: float) -> float:
        stages = self.layout.pipeline
        loads = loads_of(self.shape, stages, self.layout.layers)
        slowest = float((linear * loads.linear + attention * loads.attention).max()) * stages
        return (slowest + exchange) / (linear + attention + exchange)

    def mean_step_s(self, mean: Work, num_micro: int) -> float:
        """Return the seconds of a step of mean packs, as `Work.mean` has one, `num_micro` of them per copy."""
        tokens, attention = float(mean.tokens[0]), float(mean.attention[0])  # of one, numpy takes ten times as long
        parts = self.linear_s(tokens), self.attention_s(attention), self.exchange_s(tokens)
        return self.step_s(sum(parts), num_micro, self._imbalance(*parts))

    def pipeline_ratio(self, num_micro: int, imbalance: float = 1.0) -> float:
        """Return the time of a step's micro batches over that of stages which are equal and never wait.

        The slowest stage sets the pace; filling and draining takes each stage once, and a virtual stage's time with
        interleaving. Source: arXiv 2104.04473, section 2.2.
        """
        waits = (self.layout.pipeline - imbalance) / self.layout.virtual
        return imbalance + waits / num_micro

    def step_s(self, micro_s: float, num_micro: int, imbalance: float = 1.0) -> float:
        """Return the seconds of a step from the seconds of a micro batch and the micro batches per copy."""
        busy = micro_s * num_micro * self.pipeline_ratio(num_micro, imbalance)
        return busy + self.exposed_s(micro_s)

    def exposed_s(self, micro_s: float) -> float:
        """Return the seconds of exchanging gradients that the backward pass of a micro batch does not hide."""
        return max(0.0, self.gradients_s() - _BACKWARD * micro_s)


def _at_least[T: (float, FloatArray)](least: float, values: T) -> T:
    return max(values, least) if isinstance(values, float) else np.maximum(values, least)


def _share_of_others(ranks: int) -> float:
    return (ranks - 1) / ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Step time relative to that of packs of mean cost, because ranks and stages wait for each other."""

    straggler_ratio: float  #: ratio without balanced packs; 1 if all packs cost the same
    balanced_ratio: float  #: ratio with balanced packs

    def ratio(self, balance: str) -> float:
        """Return the ratio for a `packing.balance.kind`."""
        return self.straggler_ratio if balance == "none" else self.balanced_ratio


def waiting_of(costs: FloatArray, recipe: SFTRecipe) -> Waiting:
    """Return how long a recipe's ranks wait over the first steps of the run, in the host's order of packs.

    The time of a step is that of `straggler_ratios`. Packs are balanced as in a build: across batches if the recipe
    says so, else within a batch.

    `costs` are those of the packs in any unit; shape [num_packs], float64.

    Raises:
        ConfigError: the host does not run with it, or its batch grows at first.
    """
    topology, balance = recipe.parallelism, recipe.packing.balance
    stages, has_experts = topology.pipeline_model_parallel_size, topology.expert_model_parallel_size > 1
    units = np.rint(costs / costs.mean() * _UNITS).astype(np.int64)
    slots = PackOrder(_settings(recipe, len(costs))).first_pass()[:_MAX_STEPS]
    order = balanced_order(
        units,
        slots,
        window_batches=balance.window_batches if balance.kind == "across_batches" else 1,
        seed=balance.seed,
        matches_micro_batches=has_experts or stages > 1,
        begins_cheap=has_experts or stages > 1,
    )
    straggler, balanced_ratio = (
        float(straggler_ratios(unit_costs, slots, num_stages=stages, has_experts=has_experts).mean())
        for unit_costs in (units, units[order])
    )
    return Waiting(straggler_ratio=straggler, balanced_ratio=balanced_ratio)


def packs_of_steps(recipe: SFTRecipe, num_packs: int, steps: Iterable[int] | None = None) -> list[IntArray]:
    """Return the packs that ranks read at each step, in the host's order; each of shape [ranks, packs], int64.

    `steps` are counted from 1, as the host does (default: the first steps of the run).

    Raises:
        ConfigError: the host does not run with the recipe, or does not reach a step.
    """
    settings = _settings(recipe, num_packs)
    order, ranks = PackOrder(settings), settings.topology.data_parallel_size
    num_steps = min(_MAX_STEPS, max(num_packs // settings.global_batch_size, 1), settings.num_steps or _MAX_STEPS)
    step_numbers = range(order.first_step, order.first_step + num_steps) if steps is None else steps
    return [np.stack([order.packs_at(step, rank) for rank in range(ranks)]) for step in step_numbers]


def _settings(recipe: SFTRecipe, num_packs: int) -> ReplaySettings:
    return replay_settings(recipe, num_packs={TRAIN: num_packs}, world_size=None, version=recipe.release.bridge)
