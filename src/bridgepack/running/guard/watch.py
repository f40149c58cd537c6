"""Observes one step: the boundaries that every module receives, and the tokens that each loss counts.

No tensor is read during the step: references are kept and read afterwards, so that a step is never interrupted by a
device synchronisation. The model has hooks only during checked steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from bridgepack.bridge.imports import import_host

if TYPE_CHECKING:
    from bridgepack.running.guard.callback import Guard

#: Names of the argument with the boundaries of a packed batch, in model chunks and layers.
#: Source: megatron/bridge/training/gpt_step.py, vlm_step.py; megatron/core/transformer/attention.py of 0.19.2.
PACKED_SEQ_PARAMS = "packed_seq_params"
#: Layer attributes that mix the tokens of a row and so need boundaries: attention, and Mamba's state.
_MIXERS = ("self_attention", "mixer")
_BOUNDARY_KEYS = ("cu_seqlens_q", "cu_seqlens")
#: Marks the boundaries of a call that no hook observed.
NOT_SEEN: Any = object()


@dataclass(kw_only=True, slots=True)
class Call:
    """One micro batch in one model chunk."""

    chunk: int  #: position of the chunk in the model
    loader_gave_boundaries: bool | None = None  #: the batch had boundaries; None if no batch was read
    params: Any = NOT_SEEN  #: the boundaries passed to the chunk; NOT_SEEN if it was not called
    #: the different boundaries passed to its layers, in order
    layer_params: list[Any] = field(default_factory=list)
    layers_without: list[str] = field(default_factory=list)  #: names of the layers without boundaries
    labels: Any = None  #: the labels passed to the chunk
    loss_mask: Any = None  #: the mask that its loss uses
    loss: Any = None  #: copy of the loss function's result


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixer:
    """A module of a layer that needs boundaries."""

    module: Any  #: the module
    name: str  #: its name in the model
    chunk: int  #: position of its chunk in the model
    has_state: bool  #: it carries a state from token to token, so it also needs each token's sequence index


def mixers_of(chunks: Sequence[Any]) -> tuple[Mixer, ...]:
    """Return the modules of the language model's layers that need boundaries, without vision layers.

    Source: megatron/core/models/common/language_module/language_module.py; transformer/transformer_layer.py,
    ssm/mamba_layer.py of 0.19.2.
    """
    mixers: dict[int, Mixer] = {}
    for chunk, module in enumerate(chunks):
        for name, layer in chain.from_iterable(root.named_modules() for root in language_roots(module)):
            for part in _MIXERS:
                mixer = getattr(layer, part, None)
                if mixer is not None and _takes_boundaries(mixer):
                    number = getattr(layer, "layer_number", None)
                    label = f"layer {number} {part}" if number else f"{name}.{part}"
                    has_state = type(mixer).__name__.startswith("Mamba")
                    mixers[id(mixer)] = Mixer(module=mixer, name=label, chunk=chunk, has_state=has_state)
    return tuple(mixers.values())


def language_roots(chunk: Any) -> list[Any]:
    """Return the language models in a chunk, or the chunk if there are none; without vision layers beside them."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    return [module for module in chunk.modules() if isinstance(module, LanguageModule)] or [chunk]


def _takes_boundaries(module: Any) -> bool:
    try:
        return PACKED_SEQ_PARAMS in inspect.signature(module.forward).parameters
    except (TypeError, ValueError):  # forward is not a Python function
        return False


def num_eager_steps(model_config: Any) -> int | None:
    """Return the number of steps before a full-iteration CUDA graph takes over; None without such a graph.

    Source: megatron/core/full_cuda_graph.py of 0.19.2: no Python code runs after the graph is captured.
    """
    if not import_host("utils.cuda_graph").is_full_iteration_cuda_graph(model_config):
        return None
    return int(getattr(model_config, "cuda_graph_warmup_steps", 0) or 0)


class StepWatch:
    """Observations of one step on this rank."""

    def __init__(self, chunks: Sequence[Any], mixers: Sequence[Mixer], step: int) -> None:
        """Add hooks to a model's chunks and mixers for a step (as the host logs it, from 1); `close` removes them."""
        self.step = step
        self.calls: list[Call] = []
        self.num_chunks = len(chunks)
        #: Boundaries that layers got outside a forward step: with overlapped expert communication they run later.
        self.stray_params: list[list[Any]] = [[] for _ in chunks]
        self.stray_without: list[list[str]] = [[] for _ in chunks]
        self._chunk_of = {id(part): index for index, chunk in enumerate(chunks) for part in _wrappers(chunk)}
        self._current: Call | None = None
        self._hooks = [chunk.register_forward_pre_hook(self._see_chunk, with_kwargs=True) for chunk in chunks]
        for mixer in mixers:
            hook = partial(self._see_mixer, mixer)
            self._hooks.append(mixer.module.register_forward_pre_hook(hook, with_kwargs=True))

    def close(self) -> None:
        """Remove the hooks from the model."""
        while self._hooks:
            self._hooks.pop().remove()

    def forward_step(
        self, step: Callable[..., Any], data_iterator: Any, model: Any, *arguments: Any, **options: Any
    ) -> Any:
        """Return the forward step's result, with an observed loss function."""
        call = Call(chunk=self._chunk_of.get(id(model), 0))
        self.calls.append(call)
        self._current = call
        try:
            batches = None if data_iterator is None else _WatchedBatches(data_iterator, call)
            output, loss_function = step(batches, model, *arguments, **options)
        finally:
            self._current = None
        call.loss_mask = _loss_mask_of(loss_function)
        return output, partial(_watched_loss, call, loss_function)

    def _see_chunk(self, module: Any, arguments: Any, options: dict[str, Any]) -> None:  # noqa: ARG002
        call = self._current
        if call is not None and call.params is NOT_SEEN:
            call.params = options.get(PACKED_SEQ_PARAMS)
            call.labels = options.get("labels")

    def _see_mixer(self, mixer: Mixer, module: Any, arguments: Any, options: dict[str, Any]) -> None:  # noqa: ARG002
        params, call = options.get(PACKED_SEQ_PARAMS), self._current
        layer_params = self.stray_params[mixer.chunk] if call is None else call.layer_params
        without = self.stray_without[mixer.chunk] if call is None else call.layers_without
        if params is None:
            without.append(mixer.name)
        elif not any(earlier is params for earlier in layer_params[-2:]):
            layer_params.append(params)
        if params is not None and mixer.has_state and getattr(params, "seq_idx", None) is None:
            without.append(f"{mixer.name}, which got no seq_idx")


class _WatchedBatches:
    """A data iterator that records whether its batches have boundaries."""

    def __init__(self, batches: Any, call: Call) -> None:
        self._batches = batches
        self._call = call

    def __iter__(self) -> _WatchedBatches:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if isinstance(batch, dict):
            self._call.loader_gave_boundaries = any(batch.get(key) is not None for key in _BOUNDARY_KEYS)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _wrappers(chunk: Any) -> Iterator[Any]:
    ids: set[int] = set()
    while chunk is not None and id(chunk) not in ids:
        ids.add(id(chunk))
        yield chunk
        chunk = getattr(chunk, "module", None)


def _loss_mask_of(loss_function: Any) -> Any:
    """Return the mask bound to the host's loss function; None for other loss functions.

    Source: megatron/bridge/training/gpt_step.py (_create_loss_function).
    """
    arguments = getattr(loss_function, "args", ())
    return arguments[0] if arguments and hasattr(arguments[0], "numel") else None


def _watched_loss(call: Call, loss_function: Any, *arguments: Any, **options: Any) -> Any:
    result = loss_function(*arguments, **options)
    if not options and isinstance(result, tuple):  # otherwise it was called for something other than the loss
        # The schedule scales the tensors in place and frees their memory.
        call.loss = tuple(part.detach().clone() if hasattr(part, "detach") else part for part in result)
    return result


class WatchedForwardStep:
    """A forward step with the signature that makes the host pass its state."""

    def __init__(self, guard: Guard, forward_step: Callable[..., Any]) -> None:
        self._guard = guard
        self._forward_step = forward_step
        self._bound: Callable[..., Any] | None = None
        self._state: Any = None

    def __call__(self, state: Any, data_iterator: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        """Return the forward step's result: an output, and a loss function that the guard observes."""
        if self._bound is None or self._state is not state:
            prepare = import_host("training.utils.train_utils").prepare_forward_step_func
            self._bound, self._state = prepare(self._forward_step, state), state
        watch = self._guard.watch
        try:
            if watch is None:
                output, loss_function = self._bound(data_iterator, model, *arguments, **options)
            else:
                output, loss_function = watch.forward_step(self._bound, data_iterator, model, *arguments, **options)
        except Exception as error:  # re-raised; the other ranks must hear of it
            self._guard.report_failure_in_forward(error, step_number(state))
            raise
        return output, partial(self._loss, state, loss_function)

    def _loss(self, state: Any, loss_function: Any, output: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return loss_function(output, *arguments, **options)
        except Exception as error:  # re-raised; the other ranks must hear of it
            self._guard.report_failure_in_loss(error, output, step_number(state))
            raise


def step_number(state: Any) -> int:
    """Return the current step, as the host logs it."""
    return int(state.train_state.step) + 1


def is_not_finite(error: Exception, output: Any) -> bool:
    """Return whether a loss function raised because of a non-finite loss.

    Source: megatron/bridge/training/losses.py (masked_next_token_loss), the host's messages.
    """
    import torch

    if any(text in str(error) for text in ("found NaN", "found Inf")):
        return True
    tensor = output[0] if isinstance(output, tuple) else output
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
