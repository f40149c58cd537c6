"""Tiny models of every kind with the host's adapters: which linear layers get one, and which get a gradient.

Usage: python -m tests.support.adapter_probe REQUESTS.json RESULTS.json

The requests are a list of `AdapterRequest`. Models, layers and adapters are megatron-core's and megatron-bridge's own,
from the specifications with TransformerEngine (TE); TE's linear layers, norms and attention are replaced by plain ones,
and the kernels of Mamba and gated delta net by short formulas that pass gradients on. One backward pass each.
Upstream places: C/ is megatron-core 0.19.2.
"""

import copy
import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.plain_layers import plain_layers, replace_kernels

HIDDEN, SEQ_LENGTH, VOCAB_SIZE, NUM_LAYERS = 32, 16, 64, 4
_EXPERTS: Mapping[str, Any] = {
    **{"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 24, "moe_grouped_gemm": False},
    **{"moe_token_dispatcher_type": "alltoall", "moe_router_load_balancing_type": "none"},
}
_SHARED: Mapping[str, Any] = {"moe_shared_expert_intermediate_size": 24}
_LATENT: Mapping[str, Any] = {
    **{"multi_latent_attention": True, "kv_lora_rank": 16, "qk_head_dim": 8, "qk_pos_emb_head_dim": 8},
    **{"v_head_dim": 8, "rope_type": "rope", "q_lora_rank": None},
}
_LINEAR_ATTENTION: Mapping[str, Any] = {
    **{"experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 2, "linear_conv_kernel_dim": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2},
}
_FIRST_DENSE: Mapping[str, Any] = {"moe_layer_freq": [0, 1, 1, 1]}
_INDEXED: Mapping[str, Any] = {
    **{"experimental_attention_variant": "dsa", "dsa_indexer_n_heads": 2, "dsa_indexer_head_dim": 16},
    **{"dsa_indexer_topk": 4, "dsa_indexer_loss_coeff": 0.0, "qk_layernorm": True},
}
#: Kind of model -> its settings; `hybrid_layer_pattern` makes it a hybrid one.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "dense": {},
    "experts": _EXPERTS,
    "shared experts": {**_EXPERTS, **_SHARED, **_FIRST_DENSE},
    "latent": {**_LATENT, **_EXPERTS, **_SHARED, **_FIRST_DENSE},
    "latent queries": {**_LATENT, "q_lora_rank": 16},
    "indexed": {**_LATENT, **_INDEXED, "q_lora_rank": 16},
    "linear attention": {**_LINEAR_ATTENTION, **_EXPERTS, **_SHARED},
    "hybrid": {"hybrid_layer_pattern": "M-M*"},
    "hybrid experts": {"hybrid_layer_pattern": "MEM*E", **_EXPERTS, **_SHARED},
    "hybrid that begins with experts": {"hybrid_layer_pattern": "EM*-", **_EXPERTS},
    "hybrid latent experts": {"hybrid_layer_pattern": "MEM*", **_EXPERTS, **_SHARED, "moe_latent_size": 16},
    "prediction": {"mtp_num_layers": 1},
}
type Adapter = Literal["LoRA", "DoRA", "CanonicalLoRA"]
_MODULES: Mapping[Adapter, str] = {"LoRA": "lora", "DoRA": "dora", "CanonicalLoRA": "canonical_lora"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterRequest:
    """A model, its adapters and what is recomputed."""

    kind: str  #: of `KINDS`
    targets: Sequence[str]
    adapter: Adapter = "LoRA"
    peft: Mapping[str, Any] = field(default_factory=dict)  #: further fields of the adapter
    model: Mapping[str, Any] = field(default_factory=dict)  #: further settings of the model
    is_first_stage: bool = True  #: or a later one, to which activations come that require a gradient
    has_backward: bool = True  #: or only the modules are looked at


def settings_of(request: AdapterRequest) -> dict[str, Any]:
    """Return the settings of a request's model, as the host saves those of its own classes."""
    values = {**KINDS[request.kind], **request.model}
    name = "HybridModelProvider" if "hybrid_layer_pattern" in values else "GPTModelProvider"
    return {"_target_": f"megatron.bridge.models.{name}", "num_layers": NUM_LAYERS, **values}


def main(requests_path: str, results_path: str) -> None:
    from bridgepack.canaries.cpu import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tests.support.train_on_cpu import import_host

    import_host()
    _run_on_cpu()
    results = [_probed(AdapterRequest(**request)) for request in json.loads(Path(requests_path).read_text())]
    Path(results_path).write_text(json.dumps(results))


def _run_on_cpu() -> None:
    import torch
    from megatron.core import parallel_state

    from bridgepack.canaries.cpu.training import run_cuda_calls_on_cpu, run_the_rest_on_cpu

    run_cuda_calls_on_cpu()
    run_the_rest_on_cpu()
    replace_kernels()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()


def _probed(request: AdapterRequest) -> dict[str, Any]:
    """Return the linear layers with an adapter, those of them without a gradient, and what was raised."""
    from importlib import import_module

    from megatron.bridge.peft import recompute

    recompute.PEFT_RECOMPUTE_PATCHED.clear()  # it remembers the ids of models that are gone
    name = _MODULES[request.adapter]
    adapter = getattr(import_module(f"megatron.bridge.peft.{name}"), request.adapter)
    seen: dict[str, Any] = {"linears": [], "trained": [], "without": [], "raised": ""}
    try:
        model = _model(request)
        seen["linears"] = sorted({_path(name) for name, module in model.named_modules() if _is_linear(module)})
        made = adapter(target_modules=list(request.targets), **{"dim": 4, "alpha": 8, **request.peft})
        model = made(model, training=True)
        if request.has_backward:
            _step(model, request)
    # What the host raises is what is asked for, whatever its kind.
    except Exception as error:
        return {**seen, "raised": f"{type(error).__name__}: {error}"}
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    seen["trained"] = sorted({_path(name) for name in trained})
    reached = {_path(name) for name, weight in trained.items() if _has_gradient(weight)}
    seen["without"] = sorted(set(seen["trained"]) - reached)
    return seen


def _is_linear(module: Any) -> bool:
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.moe.router import TopKRouter

    return isinstance(module, (ColumnParallelLinear, RowParallelLinear, TopKRouter))


def _path(name: str) -> str:
    """Return the path of the linear layer that an adapter's weight belongs to; of the experts, that of the first."""
    path = re.split(r"\.(?:adapter|linear_in|linear_out)\.", name)[0]
    return re.sub(r"local_experts\.\d+", "local_experts.0", path)


def _has_gradient(weight: Any) -> bool:
    return weight.grad is not None and bool((weight.grad != 0).any())


def _step(model: Any, request: AdapterRequest) -> None:
    import torch

    torch.manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "linear_out" in name and not request.peft:
                weight.normal_(0, 0.03)  # while it is zero, as at the start, linear_in has no gradient
    tokens, positions = torch.randint(0, VOCAB_SIZE, (1, SEQ_LENGTH)), torch.arange(SEQ_LENGTH)[None]
    mask = torch.triu(torch.ones(SEQ_LENGTH, SEQ_LENGTH, dtype=torch.bool), 1)[None, None]
    if not request.is_first_stage:
        model.set_input_tensor(torch.randn(SEQ_LENGTH, 1, HIDDEN, requires_grad=True))
    loss = model(tokens, positions, mask, labels=tokens.roll(-1, 1))
    if loss.requires_grad:  # as C/pipeline_parallel/schedules.py:570
        loss.sum().backward()


def _model(request: AdapterRequest) -> Any:
    import torch
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.models.hybrid import hybrid_layer_specs
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.manual_seed(0)
    model_parallel_cuda_manual_seed(1)
    config, pattern = _config(request), settings_of(request).get("hybrid_layer_pattern")
    options = {"vocab_size": VOCAB_SIZE, "max_sequence_length": SEQ_LENGTH, "position_embedding_type": "rope"}
    options["pre_process"] = request.is_first_stage
    if pattern:
        spec = _plain(hybrid_layer_specs.hybrid_stack_spec)
        return HybridModel(config, spec, hybrid_layer_pattern=pattern, **options)
    block = _block(config)
    prediction = None
    if config.mtp_num_layers:
        prediction = get_gpt_mtp_block_spec(config, block, use_transformer_engine=True)
    return GPTModel(config, block, mtp_block_spec=prediction, **options)


def _config(request: AdapterRequest) -> Any:
    import torch
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    values = {name: value for name, value in settings_of(request).items() if name != "_target_"}
    pattern = values.pop("hybrid_layer_pattern", None)
    if pattern:
        values |= {"num_layers": len(pattern), "is_hybrid_model": True, "use_mamba_mem_eff_path": False}
        values |= {"mamba_state_dim": 4, "mamba_head_dim": 8, "mamba_num_groups": 2, "mamba_num_heads": 4}
    sizes = {"hidden_size": HIDDEN, "ffn_hidden_size": 48, "num_attention_heads": 4, "num_query_groups": 2}
    options = {
        **{"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu},
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0, "add_bias_linear": False, "init_method_std": 0.3},
        **{"use_cpu_initialization": True, "bias_dropout_fusion": False, "bias_activation_fusion": False},
        **{"apply_rope_fusion": False, "persist_layer_norm": False, "gradient_accumulation_fusion": False},
    }
    kind = MLATransformerConfig if values.get("multi_latent_attention") else TransformerConfig
    return kind(**{**sizes, "kv_channels": 8, **options, **values})


def _block(config: Any) -> Any:
    """Return the host's layers with TE, for every attention variant, in which TE's classes are replaced."""
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as variants
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    parts = plain_layers()
    layers = variants.get_transformer_layer_with_experimental_attention_variant_spec(config, backend=parts.Backend())
    return TransformerBlockSubmodules(layer_specs=[copy.deepcopy(one) for one in layers], layer_norm=parts.Norm)


def _plain(spec: Any) -> Any:
    """Return a specification in which plain layers take the place of TE's."""
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec_for_backend
    from megatron.core.models.hybrid import hybrid_layer_specs
    from megatron.core.transformer.spec_utils import ModuleSpec

    parts = plain_layers()
    for stand_in, plain in parts.replaced:
        if spec is stand_in:  # without TE, its classes are stand-ins
            return plain
    if spec is hybrid_layer_specs.moe:
        return get_moe_module_spec_for_backend(backend=parts.Backend(), num_experts=4, moe_grouped_gemm=False)
    if isinstance(spec, functools.partial):
        options = {name: _plain(value) for name, value in spec.keywords.items()}
        return functools.partial(spec.func, *map(_plain, spec.args), **options)
    if isinstance(spec, ModuleSpec):
        changed = ModuleSpec(module=_plain(spec.module), params=spec.params, submodules=_plain(spec.submodules))
        changed.metainfo = spec.metainfo
        return changed
    if dataclasses.is_dataclass(spec):
        fields = {one.name: _plain(getattr(spec, one.name)) for one in dataclasses.fields(spec)}
        return dataclasses.replace(spec, **fields)
    return [_plain(one) for one in spec] if isinstance(spec, list) else spec


if __name__ == "__main__":
    main(*sys.argv[1:])
