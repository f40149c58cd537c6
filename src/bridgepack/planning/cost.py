"""What a pack costs in floating-point operations, from the shape of its model."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.planning.shape import ModelShape

#: Forward and backward pass of a multiply-add: 2 and 4 operations.
_OPERATIONS = 6.0

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """Floating-point operations of a forward and a backward pass, every weight trained, nothing computed again.

    A sequence of n runtime tokens costs `per_token * n + per_square * n**2`, and for each (window, operations) of
    `windows`: operations * (n**2 - max(n - window, 0)**2), which grows by token only, once n is past the window.
    Causal attention is counted as half of its square.

    Source: `num_floating_point_operations` of megatron/bridge/training/utils/flop_utils.py, 0.6.2.
    """

    per_token: float  #: FLOPs for each runtime token, padding included
    per_square: float  #: FLOPs for each squared runtime token of a sequence, of layers that attend to all of it
    windows: tuple[tuple[int, float], ...] = ()  #: (window in tokens, FLOPs for each squared token)

    def of_sequences(self, runtime_lengths: npt.ArrayLike) -> FloatArray:
        """Return the FLOPs of each sequence; float64, in the shape of its runtime length."""
        lengths: FloatArray = np.asarray(runtime_lengths, dtype=np.float64)
        cost = self.per_token * lengths + self.per_square * lengths**2
        for window, operations in self.windows:
            cost += operations * (lengths**2 - np.maximum(lengths - window, 0) ** 2)
        return cost


def cost_of(shape: ModelShape) -> StepCost:
    """Return what a model of a shape costs."""
    used = sum(layer.weights + layer.routed_used + layer.scan for layer in shape.layers)
    squares: defaultdict[int, float] = defaultdict(float)  # 0 for no window
    for layer in shape.layers:
        squares[layer.window or 0] += _OPERATIONS * layer.width
    return StepCost(
        per_token=_OPERATIONS * (used + shape.embedding),
        per_square=squares.pop(0, 0.0),
        windows=tuple(sorted(squares.items())),
    )
