"""A forward step that the guard can look into, and that tells it what failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.running.guard.callback import Guard


class WatchedForwardStep:
    """A forward step as the host calls it: it hands over its state by this signature."""

    def __init__(self, guard: Guard, forward_step: Callable[..., Any]) -> None:
        self._guard = guard
        self._forward_step = forward_step
        self._bound: Callable[..., Any] | None = None
        self._state: Any = None

    def __call__(self, state: Any, data_iterator: Any, model: Any, *rest: Any, **options: Any) -> Any:
        """Return what the forward step returns: an output, and a loss function that the guard can look into."""
        if self._bound is None or self._state is not state:
            from megatron.bridge.training.utils.train_utils import prepare_forward_step_func

            self._bound, self._state = prepare_forward_step_func(self._forward_step, state), state
        watch = self._guard.watch
        try:
            if watch is None:
                output, loss_function = self._bound(data_iterator, model, *rest, **options)
            else:
                output, loss_function = watch.forward_step(self._bound, data_iterator, model, *rest, **options)
        except Exception as error:  # whatever it is, it goes on; the other ranks have to hear of it
            self._guard.failed_in_forward(error, step_number(state))
            raise
        return output, partial(self._loss, state, loss_function)

    def _loss(self, state: Any, loss_function: Any, output: Any, *rest: Any, **options: Any) -> Any:
        try:
            return loss_function(output, *rest, **options)
        except Exception as error:  # whatever it is, it goes on; the other ranks have to hear of it
            self._guard.failed_in_loss(error, output, step_number(state))
            raise


def step_number(state: Any) -> int:
    """Return the step that is being computed, as the host logs it."""
    return int(state.train_state.step) + 1


def is_not_finite(error: Exception, output: Any) -> bool:
    """Say whether a loss function raised for a loss that is not finite.

    Source: megatron/bridge/training/losses.py (masked_next_token_loss), the host's messages.
    """
    import torch

    if any(text in str(error) for text in ("found NaN", "found Inf")):
        return True
    tensor = output[0] if isinstance(output, tuple) else output
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
