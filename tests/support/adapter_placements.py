"""The host's adapters beside layers that ranks split: output and gradients against the formula B A x of one rank.

Usage: python -m tests.support.adapter_placements REQUESTS.json RESULTS.json

The requests are a list of `host.adapter_placements.Placement`. Each is an adapter of megatron-bridge on two gloo ranks
on CPU, made from the attributes that the host reads off a layer of megatron-core. Two things are not the host's own:
for `TELinear`, which has no CPU version, stand the attributes that `get_adapter_attributes_from_linear` returns for it
(peft/utils.py:617-621); for the CUDA kernel that adds a weight's gradient to `main_grad` stands a matrix product.
"""

import dataclasses
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bridgepack.bridge.imports import import_host
from bridgepack.host.adapter_placements import Placement

_IN, _OUT, _DIM, _TOKENS = 8, 12, 4, 6
_NUM_RANKS = 2
_SPLIT_INPUT = ("row", "shared_row", "expert_row")
_PARTIAL_SUMS = ("shared_row", "expert_row")
_WHOLE_OUTPUT = ("row", "copied", "shared_row", "expert_row")


def main(requests_path: str, results_path: str) -> None:
    requests = [Placement(**request) for request in json.loads(Path(requests_path).read_text("utf-8"))]
    Path(results_path).write_text(json.dumps(_run_ranks(requests)))


def _run_ranks(requests: list[Placement]) -> list[Any]:
    """Return what two ranks made of the requests, in forks of this process."""
    _import_host()
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [fork.Process(target=_rank, args=(rank, requests, folder)) for rank in range(_NUM_RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        assert not any(process.exitcode for process in ranks), [process.exitcode for process in ranks]
        return list(json.loads(Path(folder, "results.json").read_text()))


def _import_host() -> None:
    import_host("peft.utils").HAVE_TE = False  # or it takes stand-ins for classes of layers


def _rank(rank: int, requests: list[Placement], folder: str) -> None:
    torch.set_num_threads(1)
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.distributed.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=_NUM_RANKS)
    results = [_measure(request, rank) for request in requests]
    if rank == 0:
        Path(folder, "results.json").write_text(json.dumps(results))
    torch.distributed.barrier()


def _measure(request: Placement, rank: int) -> dict[str, Any]:
    """Return the largest differences from the formula over all ranks, as shares of the largest true value."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import layers

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=request.tensor,
        expert_model_parallel_size=request.expert,
        expert_tensor_parallel_size=request.expert_tensor,
    )
    layers.fused_weight_gradient_mlp_cuda = SimpleNamespace(wgrad_gemm_accum_fp32=_add_gradient)
    layers._grad_accum_fusion_available = True
    try:
        adapter = _adapter(request)
        return _compare(request, adapter, rank)
    finally:
        parallel_state.destroy_model_parallel()


def _add_gradient(tokens: torch.Tensor, gradient: torch.Tensor, main_grad: torch.Tensor) -> None:
    """Add a weight's gradient, as the kernel does: main_grad [out, in], tokens [n, in], gradient [n, out]."""
    main_grad.add_(gradient.reshape(-1, gradient.shape[-1]).t() @ tokens.reshape(-1, tokens.shape[-1]))


def _adapter(request: Placement) -> Any:
    from megatron.bridge.peft.utils import (
        GroupedExpertLinearAdapter,
        ParallelLinearAdapter,
        get_adapter_attributes_from_linear,
    )
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.manual_seed(1)
    is_expert = request.kind.startswith("expert")
    config = TransformerConfig(
        num_layers=1,
        hidden_size=_IN,
        num_attention_heads=2,
        num_moe_experts=4 if is_expert else None,
        moe_grouped_gemm=False,
        moe_router_topk=2,
        add_bias_linear=False,
        tensor_model_parallel_size=request.tensor,
        expert_model_parallel_size=request.expert,
        expert_tensor_parallel_size=request.expert_tensor,
        sequence_parallel=request.is_sequence_parallel,
        gradient_accumulation_fusion=request.is_fused,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
    )
    attributes = _COPIED if request.kind == "copied" else None
    if attributes is None:
        layer = _layer(request, config)
        found = get_adapter_attributes_from_linear(layer, is_expert=is_expert)
        attributes = dataclasses.asdict(found)
    else:
        attributes = {**attributes, "disable_sequence_parallel_comm": not request.is_sequence_parallel}
    common: dict[str, Any] = {
        "base_linear_name": _NAMES[request.kind].format(
            experts=_SEQUENTIAL if request.experts == "sequential" else "experts"
        ),
        **{"activation": "identity", "column_init_method": "normal", "row_init_method": "normal"},
        **{"alpha": _DIM, "model_parallel_config": config},
    }
    if request.experts == "each":
        names = ("input_is_parallel", "base_linear_is_parallel")
        common = {**common, **{name: attributes[name] for name in names}}
        return GroupedExpertLinearAdapter(_IN, _OUT, _DIM, num_local_experts=1, **common)
    sizes = {"in_features": _IN, "out_features": _OUT, "dim": _DIM, "is_expert": is_expert}
    return ParallelLinearAdapter(**{**attributes, **sizes, **common})


_SEQUENTIAL = "experts.local_experts.0"
_NAMES: Mapping[str, str] = {
    "column": "decoder.layers.0.self_attention.linear_qkv",
    "row": "decoder.layers.0.self_attention.linear_proj",
    "copied": "decoder.layers.0.self_attention.linear_kv_down_proj",
    "shared_column": "decoder.layers.0.mlp.shared_experts.linear_fc1",
    "shared_row": "decoder.layers.0.mlp.shared_experts.linear_fc2",
    "expert_column": "decoder.layers.0.mlp.{experts}.linear_fc1",
    "expert_row": "decoder.layers.0.mlp.{experts}.linear_fc2",
}
#: Of `TELinear` with parallel_mode `duplicated`, and of `TopKRouter`: peft/utils.py:572-577,617-621.
_COPIED: Mapping[str, Any] = {
    "input_is_parallel": False,
    "disable_tensor_parallel_comm": False,
    "base_linear_is_parallel": False,
}


def _layer(request: Placement, config: Any) -> Any:
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    common: dict[str, Any] = {
        **{"config": config, "init_method": torch.nn.init.xavier_normal_, "bias": False},
        **{"skip_bias_add": True, "is_expert": request.kind.startswith("expert")},
    }
    if request.kind in _SPLIT_INPUT:
        layer: Any = RowParallelLinear(_IN, _OUT, input_is_parallel=True, **common)
    else:
        layer = ColumnParallelLinear(_IN, _OUT, gather_output=False, **common)
    if request.kind.startswith("shared"):
        layer.explicit_expert_comm = True  # core/transformer/moe/shared_experts.py:103
    return layer


def _compare(request: Placement, adapter: Any, rank: int) -> dict[str, Any]:
    is_expert = request.kind.startswith("expert")
    num_splits = request.expert_tensor if is_expert else request.tensor
    part = rank % num_splits
    group = adapter.expert_tp_group if request.experts == "each" else adapter.tp_group
    axis = 1 if request.kind in _SPLIT_INPUT else 0
    weights_in = _gathered(_matrix(adapter.linear_in.weight), axis, group)
    weights_out = _gathered(_matrix(adapter.linear_out.weight), 0, group)
    if request.is_fused:
        for linear in (adapter.linear_in, adapter.linear_out):
            linear.weight.main_grad = torch.zeros_like(linear.weight)
            linear.weight.grad_added_to_main_grad = False  # as DistributedDataParallel does

    # The tokens of a group that splits a layer; ranks of other groups have tokens of their own.
    generator = torch.Generator().manual_seed(7 + rank // num_splits)
    tokens = torch.randn(_TOKENS, 1, _IN, generator=generator)
    gradient = torch.randn(_TOKENS, 1, _OUT, generator=generator)
    whole = {
        "tokens": tokens.clone().requires_grad_(True),
        "in": weights_in.clone().requires_grad_(True),
        "out": weights_out.clone().requires_grad_(True),
    }
    wanted = whole["tokens"] @ whole["in"].t() @ whole["out"].t()
    wanted.backward(gradient)

    has_own_tokens = request.is_sequence_parallel and not request.kind.startswith(("shared", "expert"))
    cut = _cutter(part, num_splits)
    given = cut(tokens, 2) if request.kind in _SPLIT_INPUT else cut(tokens, 0) if has_own_tokens else tokens
    given = given.clone().requires_grad_(True)
    if request.experts == "each":
        output = adapter(given[:, 0], m_splits=[_TOKENS])[:, None]
    else:
        output = adapter(given)
    owed, owed_gradient = wanted.detach(), gradient
    if request.kind not in _WHOLE_OUTPUT:
        owed, owed_gradient = cut(owed, 2), cut(gradient, 2)
    elif has_own_tokens:
        owed, owed_gradient = cut(owed, 0), cut(gradient, 0)
    assert output.shape == owed.shape, (request, output.shape, owed.shape)
    if output.requires_grad:  # else the host has cut the graph, and nothing of it trains
        output.backward(owed_gradient)

    added = group if request.kind in _PARTIAL_SUMS else None
    differences = {"output": _difference(_summed(output.detach(), added), owed)}
    # Beside these layers each rank has a part of the sum, which the layer before or the dispatcher adds.
    added = group if request.kind in ("shared_column", "expert_column") else None
    of_tokens = whole["tokens"].grad
    owed = cut(of_tokens, 2) if request.kind in _SPLIT_INPUT else cut(of_tokens, 0) if has_own_tokens else of_tokens
    actual = torch.zeros_like(given) if given.grad is None else given.grad
    differences["tokens"] = _difference(_summed(actual, added), owed)
    for name, weight, owed in (
        ("linear_in", adapter.linear_in.weight, cut(whole["in"].grad, axis)),
        ("linear_out", adapter.linear_out.weight, cut(whole["out"].grad, 0)),
    ):
        if request.expert > 1 and request.experts == "shared":  # with the experts of all ranks
            owed = _summed(owed, adapter.ep_group)
        actual = weight.main_grad if request.is_fused else weight.grad
        differences[name] = _difference(None if actual is None else _matrix(actual), owed)
    return {name: _largest(value) for name, value in differences.items()}


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight of one expert of several, or the weight."""
    return weight[0] if weight.ndim == 3 else weight


def _cutter(part: int, num_parts: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    return lambda tensor, axis: tensor.chunk(num_parts, dim=axis)[part]


def _gathered(weight: torch.Tensor, axis: int, group: Any) -> torch.Tensor:
    parts = [torch.empty_like(weight) for _ in range(group.size())]
    torch.distributed.all_gather(parts, weight.detach().contiguous(), group=group)
    return torch.cat(parts, dim=axis)


def _summed(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    if group is None:
        return tensor
    tensor = tensor.clone()
    torch.distributed.all_reduce(tensor, group=group)
    return tensor


def _difference(tensor: torch.Tensor | None, owed: torch.Tensor) -> float:
    actual = torch.zeros_like(owed) if tensor is None else tensor
    return float((actual - owed).abs().max() / owed.abs().max())


def _largest(value: float) -> float:
    number = torch.tensor(value)
    torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX)
    return round(float(number), 4)


if __name__ == "__main__":
    main(*sys.argv[1:])
