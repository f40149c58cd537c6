"""Executes megatron-bridge's own training loop on a machine without a GPU, on gloo.

`run_cuda_calls_on_cpu` changes torch and megatron for the whole process, so it belongs in a process of its own
(`training_run.py`). megatron-core's local attention refuses packed sequences; `ThdAttention` takes them.
Upstream places: B/ is megatron-bridge 0.6.2, C/ is megatron-core 0.19.2.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import megatron.bridge.training.initialize as bridge_initialize
import megatron.bridge.training.setup as bridge_setup
import megatron.core.tensor_parallel.random as core_random
import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.dot_product_attention import DotProductAttention
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")

_CPU_NAMESAKES = ("Stream", "current_device", "current_stream", "device_count", "set_device", "stream", "synchronize")


def run_cuda_calls_on_cpu() -> None:
    """Make every call of the training loop that names CUDA act on the CPU, until the process ends."""
    for target, name, replacement in _replacements():
        setattr(target, name, replacement)
    _CudaMeansCpu().__enter__()


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield (object, attribute, what it becomes)."""
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
        yield module, "get_rng_state", lambda *arguments, **options: torch.get_rng_state()
    yield core_random, "_set_cuda_rng_state", lambda state, *arguments, **options: torch.set_rng_state(state)


class _CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc]
    """Puts on the CPU what a device, its name or `.cuda()` would put on a GPU.

    B/training/setup.py:281 and others name the device "cuda"; C/optimizer/clip_grads.py:174 wants a CUDA type's name.
    """

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.Tensor.type and len(arguments) == 1 and not options:
            return str(function(*arguments)).replace("torch.", "torch.cuda.")
        options = {name: _on_cpu(value) for name, value in (options or {}).items()}
        if options.get("pin_memory"):
            options["pin_memory"] = False
        return function(*map(_on_cpu, arguments), **options)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("cuda"):
        return CPU
    return CPU if isinstance(value, torch.device) and value.type == "cuda" else value


class ThdAttention(DotProductAttention):  # type: ignore[misc]
    """megatron-core's local attention, which also takes packed sequences, and counts how it was called.

    Attributes:
        num_thd_calls: forward passes over packed sequences.
        num_dense_calls: forward passes over anything else.
    """

    num_thd_calls = 0
    num_dense_calls = 0

    def forward(
        self, query: Any, key: Any, value: Any, *arguments: Any, packed_seq_params: Any = None, **options: Any
    ) -> Any:
        """Return attention inside each sequence; packed: [num_tokens, num_heads, head_size] -> [num_tokens, hidden]."""
        if packed_seq_params is None:
            self.num_dense_calls += 1
            return super().forward(query, key, value, *arguments, **options)
        self.num_thd_calls += 1
        offsets = packed_seq_params.cu_seqlens_q_padded
        if offsets is None:
            offsets = packed_seq_params.cu_seqlens_q
        query_heads, key_heads, value_heads = (_by_head(tensor) for tensor in (query, key, value))
        outputs = [
            scaled_dot_product_attention(
                query_heads[:, start:end],
                key_heads[:, start:end],
                value_heads[:, start:end],
                is_causal=True,
                enable_gqa=True,
            )
            for start, end in pairwise(offsets.flatten().tolist())
            if end > start
        ]
        return torch.cat(outputs, dim=1).transpose(0, 1).flatten(1)


def _by_head(tensor: Any) -> Any:
    """Return [num_heads, num_tokens, head_size] of [num_tokens, (1,) num_heads, head_size]."""
    return tensor.reshape(len(tensor), *tensor.shape[-2:]).transpose(0, 1)


def thd_layer_spec(config: Any) -> Any:
    """Return megatron-core's local layer with `ThdAttention` in it."""
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = ThdAttention
    return spec
