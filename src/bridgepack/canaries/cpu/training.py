"""Executes megatron-bridge's training step on a machine without a GPU, on gloo.

`run_on_cpu` changes torch and megatron for the whole process, so it belongs in a process of its own.
Upstream places: B/ is megatron-bridge 0.6.2, C/ is megatron-core 0.19.2.
"""

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from bridgepack.bridge.imports import import_host
from bridgepack.replay.slicing import thd_positions

CPU = torch.device("cpu")

_CPU_NAMESAKES = ("Stream", "current_device", "current_stream", "device_count", "set_device", "stream", "synchronize")


def run_cuda_calls_on_cpu(*, is_wide: bool = False) -> None:
    """Make every call of the training loop that names CUDA act on the CPU, until the process ends.

    Where it is wide, what asks for float32 gets float64, so that nothing is rounded on the way.
    """
    for target, name, replacement in _replacements():
        setattr(target, name, replacement)
    if is_wide:
        # C/transformer/torch_norm.py:99 makes weights of the default type, whatever the model's is.
        torch.set_default_dtype(torch.float64)
    _CudaMeansCpu(is_wide=is_wide).__enter__()


def run_the_rest_on_cpu() -> None:
    """Make adapters, experts and context ranks run without a GPU and TransformerEngine, until the process ends."""
    import megatron.core.tensor_parallel.random as core_random
    import megatron.core.utils as core_utils
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher

    adapters = import_host("peft.utils")
    # B/peft/utils.py:98 takes C/extensions/transformer_engine.py's stand-ins for the classes, and 591 then fails.
    adapters.HAVE_TE = False

    class _EndedStream(torch.cpu.Stream):  # type: ignore[misc]
        def record_event(self) -> Any:
            """Return an event that is always over."""
            return SimpleNamespace(synchronize=lambda: None)

    # C/transformer/moe/token_dispatcher.py:946 waits for an event of a side stream; those of the CPU have none.
    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = _EndedStream()
    # C/utils.py:2441 asks TransformerEngine for a context rank's part of a pack.
    core_utils.tex = SimpleNamespace(thd_get_partitioned_indices=_tokens_of_context_rank)
    # C/tensor_parallel/random.py:69 compiles C++ where outputs are recomputed, some 20 seconds for an environment.
    core_random._get_share_storage = lambda: _copy_storage


def _copy_storage(target: Any, source: Any) -> None:
    """Give a tensor whose memory was freed the values of another, as megatron-core did before it shared them."""
    storage = source.untyped_storage()
    target.untyped_storage().resize_(storage.size())
    target.untyped_storage().copy_(storage)


def _tokens_of_context_rank(cu_seqlens: Any, num_tokens: int, num_ranks: int, rank: int) -> Any:
    """Return the tokens of a rank as TransformerEngine's kernel finds them; shape [num_tokens // num_ranks], int32."""
    return torch.from_numpy(thd_positions(cu_seqlens.numpy(), num_tokens, num_ranks)[rank]).to(torch.int32)


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield (object, attribute, what it becomes)."""
    import megatron.core.tensor_parallel.random as core_random

    bridge_initialize, bridge_setup = import_host("training.initialize"), import_host("training.setup")
    # B/training/initialize.py:91 asserts a GPU unless told otherwise.
    without_gpu = functools.partial(bridge_initialize.initialize_megatron, allow_no_cuda=True)
    yield bridge_setup, "initialize_megatron", without_gpu
    # B/training/initialize.py:147 runs `make` where the wheel holds the product and no Makefile.
    yield bridge_initialize, "compile_helpers", lambda: None
    # C/timers.py:152, C/models/common/embeddings/rotary_pos_embedding.py:162, B/training/initialize.py:706 and others:
    # torch has CPU namesakes of these.
    for name in _CPU_NAMESAKES:
        yield torch.cuda, name, getattr(torch.cpu, name)
    # C/tensor_parallel/random.py:118 keeps states of the GPU's generator: here those of the CPU's.
    yield torch.cuda, "manual_seed", torch.manual_seed
    for module in (torch.cuda, torch.cuda.random):
        yield module, "get_rng_state", lambda *_, **__: torch.get_rng_state()
    yield core_random, "_set_cuda_rng_state", lambda state, *_, **__: torch.set_rng_state(state)


class _CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc]
    """Puts on the CPU what a device, its name or `.cuda()` would put on a GPU.

    B/training/setup.py:281 and others name the device "cuda"; C/optimizer/clip_grads.py:174 wants a CUDA type's name.
    Where it is wide, float32 means float64: C/tensor_parallel/cross_entropy.py:28, B/training/losses.py:70 and others
    ask for float32 whatever the model computes in.
    """

    def __init__(self, *, is_wide: bool) -> None:
        super().__init__()
        self._is_wide = is_wide

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.Tensor.type and len(arguments) == 1 and not options:
            return str(function(*arguments)).replace("torch.", "torch.cuda.")
        if self._is_wide and function is torch.Tensor.float:
            return arguments[0].double()
        options = {name: self._on_cpu(value) for name, value in (options or {}).items()}
        if options.get("pin_memory"):
            options["pin_memory"] = False
        return function(*map(self._on_cpu, arguments), **options)

    def _on_cpu(self, value: Any) -> Any:
        if self._is_wide and value is torch.float32:
            return torch.float64
        if isinstance(value, str) and value.startswith("cuda"):
            return CPU
        return CPU if isinstance(value, torch.device) and value.type == "cuda" else value
