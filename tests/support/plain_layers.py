"""Plain layers and short formulas in the place of TransformerEngine's layers and of kernels that need a GPU.

Upstream places: C/ is megatron-core 0.19.2.
"""

import contextlib
import functools
from types import SimpleNamespace
from typing import Any


@functools.cache
def plain_layers() -> Any:
    """Return the plain layers, and TE's class -> the one that takes its place."""
    import torch
    from megatron.core.extensions import transformer_engine as te
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    class Norm(torch.nn.RMSNorm):
        def __init__(self, config: Any = None, hidden_size: int = 0, eps: float = 1e-5, **_: Any) -> None:
            super().__init__(hidden_size, eps=eps)

    class Column(ColumnParallelLinear):
        def __init__(self, *arguments: Any, name: Any = None, **options: Any) -> None:
            super().__init__(*arguments, **options)

    class Row(RowParallelLinear):
        def __init__(self, *arguments: Any, name: Any = None, **options: Any) -> None:
            super().__init__(*arguments, **options)

    class Whole(Column):
        def __init__(self, *arguments: Any, parallel_mode: Any = None, **options: Any) -> None:
            for name in ("skip_weight_param_allocation", "gtp_remat_group"):  # the second from core 0.20 on
                options.pop(name, None)
            super().__init__(*arguments, **{"gather_output": True, **options})

    class NormColumn(Column):
        def __init__(self, size: int, *arguments: Any, **options: Any) -> None:
            super().__init__(size, *arguments, **options)
            self.norm = Norm(hidden_size=size)

        def forward(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
            return super().forward(self.norm(inputs), *arguments, **options)

    class Attention(torch.nn.Module):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

        def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
            heads = [part.permute(1, 2, 0, 3) for part in (query, key, value)]
            output = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
            return output.permute(2, 0, 1, 3).flatten(2)

    class Backend(LocalSpecProvider):
        def linear(self) -> type:
            return Whole

        def fuse_layernorm_and_linear(self) -> bool:
            return True

        def column_parallel_layer_norm_linear(self) -> type:
            return NormColumn

        def layer_norm(self, *_: Any, **__: Any) -> type:
            return Norm

        def core_attention(self) -> type:
            return Attention

    replaced = [
        (te.TELayerNormColumnParallelLinear, NormColumn),
        (te.TEColumnParallelLinear, Column),
        (te.TERowParallelLinear, Row),
        (te.TELinear, Whole),
        (te.TENorm, Norm),
        (te.TEDotProductAttention, Attention),
    ]
    return SimpleNamespace(Norm=Norm, Column=Column, Whole=Whole, Backend=Backend, replaced=replaced)


def replace_kernels() -> None:
    """Let the layers be made and run whose kernels need a GPU or TE."""
    import megatron.core.ssm.gated_delta_net.common as delta_common
    import megatron.core.tensor_parallel.random as core_random
    import torch
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.ssm import mamba_mixer
    from megatron.core.ssm.gated_delta_net import gdn
    from megatron.core.transformer import multi_latent_attention, multi_token_prediction
    from megatron.core.transformer.experimental_attention_variant import absorbed_mla
    from megatron.core.transformer.moe import moe_layer

    parts = plain_layers()

    class GatedNorm(torch.nn.RMSNorm):
        def __init__(self, size: int, **_: Any) -> None:
            super().__init__(size)

        def forward(self, inputs: Any, gate: Any = None) -> Any:
            return super().forward(inputs if gate is None else inputs * torch.sigmoid(gate))

    def scan(inputs: Any, steps: Any, decay: Any, ins: Any, outs: Any, *_: Any, **__: Any) -> Any:
        return inputs * torch.sigmoid(steps)[..., None] + ins.mean() + outs.mean()

    def delta_rule(*inputs: Any, g: Any, beta: Any, **options: Any) -> Any:
        query, key, value = inputs or (options[name] for name in "qkv")  # by name from core 0.20 on
        return value * (query * key).sum(-1, keepdim=True) * torch.sigmoid(g)[..., None] * beta[..., None], None

    mamba_mixer.HAVE_MAMBA_SSM = True
    mamba_mixer.ExtendedRMSNorm = mamba_mixer.RMSNormGated = GatedNorm
    mamba_mixer.mamba_chunk_scan_combined = scan
    delta_common.HAVE_FLA = True
    delta_common.l2norm = lambda inputs, **_: torch.nn.functional.normalize(inputs, dim=-1)
    gdn.causal_conv1d = lambda x, **_: (torch.nn.functional.silu(x), None)
    gdn.chunk_gated_delta_rule = delta_rule
    hybrid_block.TENorm = parts.Norm
    gpt_layer_specs.TESpecProvider = parts.Backend
    moe_layer.HAVE_TE, moe_layer.TELinear = True, parts.Whole
    for module in (absorbed_mla, multi_latent_attention):
        module.TELinear, module.TEColumnParallelLinear = parts.Whole, parts.Column
    # core 0.20 asks whether a layer is one of inference, whose classes are not there without TE
    multi_token_prediction.is_inference_column_parallel_linear = lambda _: False
    # C/tensor_parallel/random.py:739: CheckpointWithoutOutput always asks TE whether FP8 is on.
    core_random.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False)
    core_random.activation_recompute_forward = lambda **_: contextlib.nullcontext()
    core_random.fp8_autocast = lambda **_: contextlib.nullcontext()
