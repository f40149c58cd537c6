"""Wraps the forward step: sees each micro batch of the last stage's last chunk, and the losses of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bridgepack.bridge.imports import import_host
from bridgepack.running.losses.packs import Doubt
from bridgepack.running.losses.sums import Call, reported_sums, sum_losses

if TYPE_CHECKING:
    from bridgepack.running.losses.callback import Losses


class LossStep:
    """A forward step with the signature that makes the host pass its state."""

    def __init__(self, losses: Losses, forward_step: Callable[..., Any]) -> None:
        self._losses = losses
        self._forward_step = forward_step
        self._bound: Callable[..., Any] | None = None
        self._state: Any = None

    def __call__(self, state: Any, data_iterator: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        """Return the forward step's result: an output, and a loss function whose losses are summed by source."""
        if self._bound is None or self._state is not state:
            prepare = import_host("training.utils.train_utils").prepare_forward_step_func
            self._bound, self._state = prepare(self._forward_step, state), state
        if data_iterator is None or self._losses.packs_read() is None or not _is_last_chunk(model):
            return self._bound(data_iterator, model, *arguments, **options)
        batches = _SeenBatches(data_iterator)
        output, loss_function = self._bound(batches, model, *arguments, **options)
        try:
            return output, self._with_sums(loss_function, batches.batch)
        except Exception as error:  # whatever is wrong, the run must train
            self._losses.fail(error)
            return output, loss_function

    def _with_sums(self, loss_function: Callable[..., Any], batch: Any) -> Callable[..., Any]:
        """Return the loss function with the sums; the first argument that is bound to it stays the mask."""
        packs, following = self._losses.packs_read(), self._losses.following
        assert packs is not None
        assert following is not None
        call = Call(segments=packs.segments_of(batch))
        following.calls.append(call)  # each of them counts, as the last ones of a step are those that matter
        if call.segments is None:
            return loss_function
        mask = _mask_of(loss_function)
        if mask is None:
            call.segments = Doubt(reason="the run has a loss function of its own")
            first = next(iter(getattr(loss_function, "args", ())), None)
            return partial(self._loss_of_user, first, loss_function, call)
        return partial(self._loss, mask, loss_function, call)

    def _loss(
        self,
        mask: Any,
        loss_function: Callable[..., Any],
        call: Call,
        output: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        result = loss_function(output, *arguments, **options)
        if arguments or options:  # it was called for something other than the loss
            return result
        try:
            self._sum(call, mask, output)
        except Exception as error:  # whatever is wrong, the run must train
            self._losses.fail(error)
        return result

    def _sum(self, call: Call, mask: Any, output: Any) -> None:
        following = self._losses.following
        if following is None or self._losses.packs_read() is None:
            return
        if isinstance(output, tuple):  # a model that makes its own mask
            call.segments = Doubt(reason="the model makes a mask of its own")
            output, mask = output[0], output[1]
        losses, weights = output.detach().reshape(-1), mask.detach().reshape(-1)
        sum_losses(call, losses, weights, num_ranks=following.num_context_ranks)

    def _loss_of_user(
        self,
        first: Any,  # noqa: ARG002 (who looks at what is bound, as the guard does, finds it in its place)
        loss_function: Callable[..., Any],
        call: Call,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Return what a loss function of the user's own returns; its losses belong to no source."""
        result = loss_function(*arguments, **options)
        if options or len(arguments) > 1 or self._losses.following is None:
            return result
        try:
            call.sums = reported_sums(result)
        except Exception as error:  # whatever is wrong, the run must train
            self._losses.fail(error)
        return result


def _mask_of(loss_function: Any) -> Any:
    """Return the mask that is bound to the host's own loss function; None for other functions.

    Source: megatron/bridge/training/losses.py (create_masked_next_token_loss_function) of 0.6.2 and 0.7.
    """
    masked_next_token_loss = import_host("training.losses").masked_next_token_loss
    arguments: tuple[Any, ...] = getattr(loss_function, "args", ())
    is_host_s = getattr(loss_function, "func", None) is masked_next_token_loss and len(arguments) == 1
    return arguments[0] if is_host_s else None


def _is_last_chunk(model: Any) -> bool:
    from megatron.core.utils import unwrap_model

    return bool(getattr(unwrap_model(model), "post_process", True))


class _SeenBatches:
    """A data iterator that keeps the last batch, as the host may move or cut what it reads."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.batch: Any = None

    def __iter__(self) -> _SeenBatches:
        return self

    def __next__(self) -> Any:
        self.batch = next(self._batches)
        return self.batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)
