"""Sums over the layers of a model, which the estimates of thousands of layouts share."""

from dataclasses import dataclass
from functools import lru_cache

from bridgepack.planning.shape import ModelShape
from bridgepack.planning.stages import ROUTED


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """Sums over the layers of a model."""

    others: float  #: weights that every token uses
    routed: float  #: weights of routed experts
    routed_used: float  #: weights of the routed experts that one token uses
    num_used: float  #: experts that one token uses
    num_mixtures: int  #: layers with experts
    recomputed: float  #: weights of the recomputed modules, those of routed experts by their speed


@lru_cache(maxsize=256)
def sums_of(shape: ModelShape, modules: tuple[str, ...]) -> Sums:
    """Return the sums over a model's layers where `modules`, in the host's names, are recomputed."""
    layers = shape.layers
    parts = [part for layer in layers for part in layer.kept.parts if part.module in modules]
    return Sums(
        others=shape.other_weights,
        routed=shape.routed_weights,
        routed_used=sum(layer.routed_used for layer in layers),
        num_used=shape.num_experts * sum(layer.routed_used / layer.routed for layer in layers if layer.routed),
        num_mixtures=sum(layer.routed > 0 for layer in layers),
        recomputed=sum(part.weights + part.routed / ROUTED for part in parts),
    )
