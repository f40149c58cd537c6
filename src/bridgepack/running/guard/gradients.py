"""Trained weights: how many a run has, and which modules of the language model get a gradient.

Gradients are read after a checked step, before the host clears them in the next one: no hook, and one synchronisation
with the device. A module is judged over all ranks that hold a part of it, and over several steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.records.guarded import GroupSizes, TrainedWeights
from bridgepack.running.guard.watch import language_roots

#: A module's number among the experts of a rank: which expert a token goes to is chance, so that all are one module.
_EXPERT = re.compile(r"\blocal_experts\.\d+\.?")
#: The two matrices of an adapter: one begins as 0, so that the other has no gradient in the first step.
#: Source: megatron/bridge/peft/utils.py of 0.6.2 (ParallelLinearAdapter).
_MATRIX = re.compile(r"\.(linear_in|linear_out|lora_a|lora_b)$", re.IGNORECASE)
#: Modules that choose among tokens, which no gradient passes.
#: Source: megatron/core/transformer/experimental_attention_variant/dsa.py of 0.19.2 (DSAIndexer).
_CHOOSES = re.compile(r"\bindexer\b")
#: Maximum kinds of modules that a rank tells the others.
_MAX_KINDS = 12


@dataclass(frozen=True, slots=True)
class TrainedModule:
    """A module of the language model with trained weights."""

    name: str  #: with its layer's number, e.g. `layer 3 mlp.linear_fc1.adapter`
    weights: tuple[Any, ...]  #: its trained parameters on this rank


def trained_modules(chunks: Sequence[Any]) -> tuple[TrainedModule, ...]:
    """Return the modules of the language model with trained weights, in the same order on all ranks of a stage.

    All experts of a layer are one module. What chooses among tokens, and vision layers, which text does not reach,
    are left out.
    """
    weights_by_module: dict[str, list[Any]] = {}
    for index, chunk in enumerate(chunks):
        for root in language_roots(chunk):
            for name, weight in root.named_parameters():
                if weight.requires_grad and not _CHOOSES.search(name):
                    weights_by_module.setdefault(
                        _module_name(root, name, index if len(chunks) > 1 else None), []
                    ).append(weight)
    return tuple(TrainedModule(name, tuple(weights)) for name, weights in weights_by_module.items())


def modules_with_gradient(modules: Sequence[TrainedModule]) -> int:
    """Return bit i = 1 if a gradient of module i has a number that is not 0; synchronises with the device once."""
    import torch

    owners, flags = [], []
    for index, module in enumerate(modules):
        for gradient in filter(lambda gradient: gradient is not None, map(_gradient_of, module.weights)):
            owners.append(index)
            flags.append(gradient.any())
    is_there = torch.stack(flags).tolist() if flags else []
    return sum(
        1 << index for index in {owner for owner, has_gradient in zip(owners, is_there, strict=True) if has_gradient}
    )


def reads_gradients(config: Any) -> bool:
    """Return whether gradients of a run can be read after a step.

    Megatron-FSDP keeps its own buffers of them, and with MXFP8 the host may put weights where gradients were.
    Source: megatron/core/distributed/distributed_data_parallel_config.py of 0.19.2.
    """
    ddp = getattr(config, "ddp", None)
    return not any(getattr(ddp, name, False) for name in ("use_megatron_fsdp", "reuse_grad_buf_for_mxfp8_param_ag"))


def trained_weights(
    chunks: Sequence[Any], modules: Sequence[TrainedModule], sizes: GroupSizes, *, stage: int
) -> TrainedWeights:
    """Return this rank's share of a run's weights; `stage` is its pipeline stage."""
    num_trained = total = 0.0
    for chunk in chunks:
        for weight in chunk.parameters():
            if stage and getattr(weight, "shared_embedding", False):
                continue  # the last stage's copy of the embedding
            share = weight.numel() / _copies(weight, sizes)
            total += share
            num_trained += share if weight.requires_grad else 0.0
    kinds = Counter(re.sub(r"^(mtp )?layer \d+ ", "", module.name) for module in modules)
    return TrainedWeights(
        stage=stage,
        trained=num_trained,
        total=total,
        num_modules=len(modules),
        kinds=tuple(kinds.most_common(_MAX_KINDS)),
    )


def _copies(weight: Any, sizes: GroupSizes) -> int:
    """Return how many ranks have the same part of a weight.

    Source: megatron/core/distributed/distributed_data_parallel.py of 0.19.2: `allreduce` is False for experts.
    """
    if not getattr(weight, "allreduce", True):
        return sizes.expert_copies
    tensor_copies = 1 if getattr(weight, "tensor_model_parallel", False) else sizes.tensor
    return sizes.data * sizes.context * tensor_copies


def _gradient_of(weight: Any) -> Any:
    """Return the gradient on this rank; None if there is none.

    Source: megatron/core/distributed/param_and_grad_buffer.py of 0.19.2 (main_grad).
    """
    gradient = getattr(weight, "main_grad", None)
    gradient = weight.grad if gradient is None else gradient
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient


def _module_name(root: Any, name: str, chunk: int | None) -> str:
    owner = _MATRIX.sub("", name.rpartition(".")[0] or name)
    owner = _EXPERT.sub("", owner).strip(".")
    for path, module in _ancestors(root, name):
        number = getattr(module, "layer_number", None)
        if isinstance(number, int):
            kind = "mtp layer" if path.startswith("mtp") else "layer"
            return f"{kind} {number} {owner.removeprefix(path).strip('.')}".strip()
    return owner if chunk is None else f"{owner} of chunk {chunk}"


def _ancestors(root: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the modules above a parameter with their paths, the outermost first."""
    module, path = root, ""
    for part in name.split(".")[:-1]:
        module, path = getattr(module, part), f"{path}.{part}".strip(".")
        yield path, module
