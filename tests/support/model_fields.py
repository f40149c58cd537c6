"""What each field of a model's config changes over the same weights: tiny models of the host, built and run on CPU.

Usage: python -m tests.support.model_fields REQUESTS.json RESULTS.json

A request is a kind of model, a field, its other value, and settings that both models have. Both are made by the host's
own providers, in single precision, from the specifications of layers that the host has for machines without
TransformerEngine. The second gets the first one's weights by name, strictly, then both read the same tokens.
Two things are not the host's: the norm of hybrid models, which is torch's (core/transformer/torch_norm.py) where the
specification has TransformerEngine's; and the scan of Mamba, a loop in the place of a kernel.
"""

import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

_SEQ_LENGTH, _VOCAB_SIZE = 16, 64
#: Differences that another order of additions may leave.
TOLERANCE = 1e-5
COMMON: Mapping[str, Any] = {
    **{"num_layers": 3, "hidden_size": 32, "ffn_hidden_size": 48, "num_attention_heads": 4, "num_query_groups": 2},
    **{"kv_channels": 8, "vocab_size": _VOCAB_SIZE, "seq_length": _SEQ_LENGTH, "position_embedding_type": "rope"},
    **{"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": "silu", "add_bias_linear": False},
    **{"hidden_dropout": 0.0, "attention_dropout": 0.0, "share_embeddings_and_output_weights": False},
    **{"use_cpu_initialization": True, "bias_dropout_fusion": False, "bias_activation_fusion": False},
    **{"apply_rope_fusion": False, "persist_layer_norm": False, "gradient_accumulation_fusion": False},
    **{"masked_softmax_fusion": False, "transformer_impl": "local", "bf16": False, "fp16": False},
    **{"params_dtype": "float32", "qk_layernorm": True, "cross_entropy_loss_fusion": False},
    **{"attention_backend": "auto"},
}
_EXPERTS: Mapping[str, Any] = {
    **{"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 24, "moe_grouped_gemm": False},
    **{"moe_token_dispatcher_type": "alltoall", "moe_router_load_balancing_type": "none"},
    **{"moe_shared_expert_intermediate_size": 24, "moe_layer_freq": [0, 1, 1]},
}
_LATENT: Mapping[str, Any] = {
    **{"multi_latent_attention": True, "kv_lora_rank": 16, "qk_head_dim": 8, "qk_pos_emb_head_dim": 8},
    **{"v_head_dim": 8, "rope_type": "rope", "q_lora_rank": 16, "num_query_groups": 4},
}
_HYBRID: Mapping[str, Any] = {
    **{"num_layers": None, "hybrid_layer_pattern": "M-*E", "is_hybrid_model": True, "use_mamba_mem_eff_path": False},
    **{"mamba_state_dim": 4, "mamba_head_dim": 8, "mamba_num_groups": 2, "mamba_num_heads": 4, "qk_layernorm": False},
}
_NO_FREQUENCY = {name: value for name, value in _EXPERTS.items() if name != "moe_layer_freq"}
#: Kind of model -> its settings over the common ones.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "dense": {},
    "experts": _EXPERTS,
    "latent": {**_LATENT, **_EXPERTS},
    "hybrid": {**_NO_FREQUENCY, **_HYBRID},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldRequest:
    """A field of one kind of model, changed."""

    kind: str  #: of `KINDS`
    name: str
    value: Any = None  #: None where it follows from the type
    allowed: Any = None  #: the type, as `host.facts` has it
    beside: Mapping[str, Any] = field(default_factory=dict)  #: further settings of both models
    with_it: Mapping[str, Any] = field(default_factory=dict)  #: further settings of the changed model


def main(requests_path: str, results_path: str) -> None:
    from bridgepack.canaries.cpu import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tests.support.train_on_cpu import import_host

    import_host()
    _run_on_cpu()
    bases: dict[str, Any] = {}
    results = [_verdict(FieldRequest(**request), bases) for request in json.loads(Path(requests_path).read_text())]
    Path(results_path).write_text(json.dumps(results))


def _run_on_cpu() -> None:
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.post_training.modelopt.hybrid import model_specs
    from megatron.core.ssm import mamba_mixer
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    torch.set_num_threads(1)
    model_specs.Norm = hybrid_block.TENorm = WrappedTorchNorm
    mamba_mixer.HAVE_MAMBA_SSM = True
    mamba_mixer.ExtendedRMSNorm = mamba_mixer.RMSNormGated = _gated_norm()
    mamba_mixer.mamba_chunk_scan_combined = _scan
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()


def _gated_norm() -> type:
    import torch

    class GatedNorm(torch.nn.Module):
        """RMS of each group of (inputs x silu(gate)). Source: mamba_ssm/ops/triton/layernorm_gated.py (rms_norm_ref)"""

        def __init__(self, size: int, eps: float = 1e-5, group_size: int | None = None, **_: Any) -> None:
            super().__init__()
            self.weight, self._eps = torch.nn.Parameter(torch.ones(size)), eps
            self._group_size = group_size or size

        def forward(self, inputs: Any, z: Any = None) -> Any:
            inputs = inputs if z is None else inputs * torch.nn.functional.silu(z)
            groups = inputs.unflatten(-1, (-1, self._group_size))
            scaled = groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + self._eps)
            return scaled.flatten(-2) * self.weight

    return GatedNorm


def _scan(inputs: Any, steps: Any, decay: Any, ins: Any, outs: Any, _chunk: int, **options: Any) -> Any:
    """Return the scan of Mamba-2, token by token.

    Source: mamba_ssm/ops/triton/ssd_combined.py (ssd_selective_scan). Inputs are [batch, tokens, heads, size], steps
    [batch, tokens, heads], decay [heads], ins and outs [batch, tokens, groups, state].
    """
    import torch

    steps = steps if options.get("dt_bias") is None else steps + options["dt_bias"]
    steps = torch.nn.functional.softplus(steps) if options.get("dt_softplus") else steps
    steps = steps.clamp(*options.get("dt_limit", (0.0, float("inf"))))
    shared = inputs.shape[2] // ins.shape[2]
    ins, outs = (part.repeat_interleave(shared, dim=2) for part in (ins, outs))
    state, outputs = torch.zeros(*inputs[:, 0].shape, ins.shape[-1]), []
    for token in range(inputs.shape[1]):
        step = steps[:, token, :, None, None]
        added = step * inputs[:, token, ..., None] * ins[:, token, :, None]
        state = state * torch.exp(step * decay[:, None, None]) + added
        outputs.append((state * outs[:, token, :, None]).sum(-1))
    skip = options.get("D")
    output = torch.stack(outputs, 1)
    if skip is not None:
        output = output + inputs * (skip[:, None] if skip.dim() == 1 else skip)
    gate = options.get("z")
    return output if gate is None else output * torch.nn.functional.silu(gate)


def _verdict(request: FieldRequest, bases: dict[str, Any]) -> dict[str, Any]:
    """Return `function`, `shape`, `free`, or `refused` with what the host raises."""
    settings = {**COMMON, **KINDS[request.kind], **request.beside}
    value = request.value if request.allowed is None else _other_value(_value(settings, request.name), request.allowed)
    if value is None:
        return {"verdict": "no value", "raised": "", "value": None}
    return {**_compared(request, settings, value, bases), "value": value}


def _compared(request: FieldRequest, settings: Mapping[str, Any], value: Any, bases: dict[str, Any]) -> dict[str, str]:
    key = json.dumps([request.kind, dict(request.beside)], sort_keys=True)
    try:
        if key not in bases:
            model = _model(settings)
            _draw_weights(model)
            bases[key] = (model.state_dict(), _logits(model))
        weights, logits = bases[key]
    # What the host raises is what is asked for, whatever its kind.
    except Exception as error:
        return {"verdict": "no base", "raised": f"{type(error).__name__}: {error}"}
    try:
        changed = _model({**settings, request.name: value, **request.with_it})
    except Exception as error:
        return {"verdict": "refused", "raised": f"{type(error).__name__}: {error}"}
    try:
        changed.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        return {"verdict": "shape", "raised": str(error)}
    try:
        difference = (_logits(changed) - logits).abs().max().item()
    except Exception as error:
        return {"verdict": "refused", "raised": f"{type(error).__name__}: {error}"}
    return {"verdict": "function" if not difference <= TOLERANCE else "free", "raised": f"{difference:.1e}"}


def _value(settings: Mapping[str, Any], name: str) -> Any:
    if name in settings:
        return settings[name]
    field_of_class = _provider_class(settings).__dataclass_fields__[name]
    default = field_of_class.default
    return None if default is MISSING else default


def _other_value(value: Any, allowed: Any) -> Any:
    """Return a value that a type allows, or None if none follows from the type."""
    for option in allowed.get("one_of", [allowed]) if isinstance(allowed, Mapping) else [allowed]:
        if option == "bool":
            return not value
        if option == "int":
            return value * 2 if isinstance(value, int) and value else 2
        if option == "float":
            return value * 2 if isinstance(value, float) and value else 0.5
        if isinstance(option, Mapping) and "names" in option and "member_of" not in option:
            return next(name for name in option["names"] if name != value)
    return None


def _draw_weights(model: Any) -> None:
    """Give every weight and buffer of floats another value; those of norms, and other vectors, lie around 1."""
    import torch

    torch.manual_seed(7)
    with torch.no_grad():
        for weight in (*model.parameters(), *model.buffers()):
            if weight.is_floating_point():
                weight.normal_(*((1.0, 0.3) if weight.dim() < 2 else (0.0, 0.3)))


def _logits(model: Any) -> Any:
    import torch

    tokens = torch.randint(0, _VOCAB_SIZE, (2, _SEQ_LENGTH), generator=torch.Generator().manual_seed(5))
    positions = torch.arange(_SEQ_LENGTH)[None].expand(2, -1)
    mask = torch.triu(torch.ones(_SEQ_LENGTH, _SEQ_LENGTH, dtype=torch.bool), 1)[None, None]
    model.eval()
    with torch.no_grad():
        return model(tokens, positions, mask)


def _model(settings: Mapping[str, Any]) -> Any:
    import torch
    from megatron.core.post_training.modelopt.hybrid.model_specs import get_hybrid_stack_modelopt_spec
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.enums import AttnBackend

    torch.manual_seed(0)
    model_parallel_cuda_manual_seed(1)
    values = dict(settings)
    values["attention_backend"] = AttnBackend[values["attention_backend"]]
    provider = _provider_class(values)(**values)
    if "hybrid_layer_pattern" in values:
        provider.hybrid_stack_spec = get_hybrid_stack_modelopt_spec(local_core_attention=True, remap_te_layernorm=False)
    else:
        provider.transformer_layer_spec = _layers
    provider.finalize()
    provider._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    return provider.provide(pre_process=True, post_process=True).float()


def _provider_class(settings: Mapping[str, Any]) -> Any:
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.hybrid.hybrid_provider import HybridModelProvider
    from megatron.bridge.models.mla_provider import MLAModelProvider

    if "hybrid_layer_pattern" in settings:
        return HybridModelProvider
    return MLAModelProvider if settings.get("multi_latent_attention") else GPTModelProvider


def _layers(config: Any) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    options = {"normalization": config.normalization, "qk_l2_norm": config.qk_l2_norm}
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, **options)
    for layer in block.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = _attention()
    return block


@functools.cache
def _attention() -> type:
    """Return the host's own attention, which takes the sizes that latent attention gives to TransformerEngine's."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    class Attention(DotProductAttention):
        def __init__(self, *arguments: Any, k_channels: Any = None, v_channels: Any = None, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if v_channels:
                self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    return Attention


if __name__ == "__main__":
    main(*sys.argv[1:])
