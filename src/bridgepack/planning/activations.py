"""Bytes of activations that a layer keeps for the backward pass, and what recomputing its modules frees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes of a token that a layer keeps, in hidden sizes, by whether it has a mixer and a feed-forward part; the inside
#: of the latter is counted apart, 4 bytes for each of its numbers. Around each part 5 are a norm and its input.
#: Source: megatron/bridge/training/utils/theoretical_memory_utils.py of 0.6.2, after arXiv 2205.05198, table 2.
_KEPT_BY: Mapping[tuple[bool, bool], float] = {
    (True, True): 18.0,
    (True, False): 18.0,
    (False, True): 5.0,
    (False, False): 0.0,
}
_FEED_FORWARD, _NORM, _NORM_OUTPUT = 4.0, 5.0, 2.0
#: Of the 4 bytes of a number inside the feed-forward part, those after the activation function.
_ACTIVATED = 2.0
#: Bytes of a logit: bf16, and fp32 in the loss. TransformerEngine's loss writes the gradient over the logits, for which
#: the host's report counts 4. Source: megatron/core/extensions/transformer_engine.py of 0.19.2,
#: `te_parallel_cross_entropy`.
_LOGIT, _LOGIT_FUSED = 6.0, 4.0
#: Bytes that stay of each number of a token sent to an expert, which is the input of its first matrix.
#: Source: megatron/core/transformer/moe/experts.py of 0.19.2, `TEGroupedMLP.forward`.
_SENT = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A module of a layer that can be recomputed alone."""

    module: str  #: the host's name
    freed: float  #: bytes of a token that are not kept then
    weights: float = 0.0  #: weights of a token that are used once more
    routed: float = 0.0  #: those of routed experts


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Bytes of a token that a layer keeps."""

    whole: float  #: all
    unsplit: float  #: those that tensor parallelism splits only with sequence parallelism
    parts: tuple[Part, ...]  #: what of the layer can be recomputed alone

    @classmethod
    def from_layer(cls, hidden_size: int, parts: tuple[Part, ...], *, has_mixer: bool, has_feed_forward: bool) -> Kept:
        """Return what a layer keeps, from its hidden size and the modules of its feed-forward part."""
        num_norms = has_mixer + has_feed_forward
        norms = Part(module="layernorm", freed=_NORM_OUTPUT * hidden_size * num_norms)
        inside = max((part.freed for part in parts), default=0.0)
        return cls(
            whole=_KEPT_BY[has_mixer, has_feed_forward] * hidden_size + inside,
            unsplit=_NORM * hidden_size * num_norms,
            parts=(norms, *parts),
        )

    def freed_bytes(self, modules: tuple[str, ...]) -> float:
        """Return the bytes that recomputing modules frees; a module inside another one counts once."""
        bytes_of_modules = {part.module: part.freed for part in self.parts if part.module in modules}
        if "moe" in bytes_of_modules:
            bytes_of_modules.pop("moe_act", None)
        return sum(bytes_of_modules.values())


def dense_parts(width: float, weights: float) -> tuple[Part, ...]:
    """Return what can be recomputed of a feed-forward part of a width."""
    return (Part(module="mlp", freed=_FEED_FORWARD * width, weights=weights),)


def expert_parts(
    *, width: float, shared_width: float, num_sent: float, weights: float, routed_weights: float, is_grouped: bool
) -> tuple[Part, ...]:
    """Return what can be recomputed of experts, from numbers and weights of one token in the experts that it uses.

    `width` is inside routed experts, `shared_width` inside shared ones, `num_sent` are the numbers sent to routed ones;
    `weights` are of shared experts, `routed_weights` of the others. `is_grouped` says whether their matrices are
    multiplied together.
    """
    kept_bytes = _FEED_FORWARD * (width + shared_width) + _SENT * num_sent
    moe = Part(module="moe", freed=kept_bytes, weights=weights, routed=routed_weights)
    return (moe, Part(module="moe_act", freed=_ACTIVATED * width)) if is_grouped else (moe,)


def logit_bytes(values: Mapping[str, Any]) -> float:
    """Return the bytes of a logit, from a model's settings."""
    is_fused = values.get("cross_entropy_loss_fusion") and values.get("cross_entropy_fusion_impl") == "te"
    return _LOGIT_FUSED if is_fused else _LOGIT
