"""Attention over packed sequences and context-parallel ranks in plain torch, for machines without TransformerEngine.

megatron-core's own local attention refuses both (megatron/core/transformer/dot_product_attention.py of 0.19.2). This
one computes each sequence by itself from the offsets and `max_seqlen` that the layer is called with, so that a wrong
offset gives wrong numbers here as it does in TransformerEngine's kernel. It is slow and obvious on purpose.
"""

import copy
from itertools import pairwise
from typing import Any

import torch
from megatron.core.transformer.dot_product_attention import DotProductAttention
from torch.nn.functional import scaled_dot_product_attention

from bridgepack.canaries.tiny_model import transformer_of
from bridgepack.replay.slicing import thd_positions


class ReferenceAttention(DotProductAttention):  # type: ignore[misc]
    """megatron-core's local attention, which also takes packed sequences, on one or several context-parallel ranks."""

    def __init__(self, config: Any, *arguments: Any, **options: Any) -> None:
        """Make the layer; the base class refuses more than one context-parallel rank, so it does not see them."""
        alone = copy.copy(config)
        alone.context_parallel_size = 1
        super().__init__(alone, *arguments, **options)
        self._context_group = options["pg_collection"].cp if config.context_parallel_size > 1 else None

    def forward(
        self, query: Any, key: Any, value: Any, *arguments: Any, packed_seq_params: Any = None, **options: Any
    ) -> Any:
        """Return attention inside each sequence; packed: [num_tokens, num_heads, head_size] -> [num_tokens, hidden]."""
        if packed_seq_params is None:
            return super().forward(query, key, value, *arguments, **options)
        query, key, value = (tensor.reshape(len(tensor), *tensor.shape[-2:]) for tensor in (query, key, value))
        offsets = packed_seq_params.cu_seqlens_q_padded
        if offsets is None:
            offsets = packed_seq_params.cu_seqlens_q
        positions, key, value = self._whole_row(offsets, key, value)
        return packed_attention(
            query,
            key,
            value,
            positions=positions,
            offsets=offsets.flatten().tolist(),
            max_seqlen=int(packed_seq_params.max_seqlen_kv),
            scale=self.softmax_scale,
        ).flatten(1)

    def _whole_row(self, offsets: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Return the positions of this rank's queries in the row, and the keys and values of the whole row."""
        if self._context_group is None:
            return torch.arange(len(key)), key, value
        num_ranks, rank = self._context_group.size(), self._context_group.rank()
        num_tokens = num_ranks * len(key)
        places = torch.from_numpy(thd_positions(offsets.flatten().cpu().numpy(), num_tokens, num_ranks)).to(key.device)
        key_and_value = [
            torch.zeros(num_tokens, *part.shape[1:], dtype=part.dtype, device=part.device).index_copy(
                0, places.flatten(), _Gathered.apply(part, self._context_group).flatten(0, 1)
            )
            for part in (key, value)
        ]
        return places[rank], key_and_value[0], key_and_value[1]


def packed_attention(
    query: Any, key: Any, value: Any, *, positions: Any, offsets: list[int], max_seqlen: int, scale: float
) -> Any:
    """Return causal attention of some tokens of a row, each over its own sequence; zeros outside every sequence.

    As in a kernel whose grid is made for `max_seqlen`, what lies beyond it in a sequence is not computed.

    Queries are [num_queries, num_heads, head_size], at `positions` of the row, [num_queries], int64, runtime; keys and
    values are of the whole row, [num_tokens, num_groups, head_size]: heads share groups where there are fewer. Offsets
    are physical, runtime.
    """
    output = torch.zeros_like(query)
    for start, end in pairwise(offsets):
        stop = min(end, start + max_seqlen)
        queries = torch.nonzero((positions >= start) & (positions < stop)).flatten()
        if stop <= start or not len(queries):
            continue
        is_seen = torch.arange(start, stop, device=query.device)[None, :] <= positions[queries][:, None]
        part = scaled_dot_product_attention(
            query[queries].transpose(0, 1),
            key[start:stop].transpose(0, 1),
            value[start:stop].transpose(0, 1),
            attn_mask=is_seen,
            scale=scale,
            enable_gqa=True,
        )
        output = output.index_copy(0, queries, part.transpose(0, 1))
    return output


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    """The same tensor of every rank; shape [ranks, *shape]. Each rank's gradient is the sum of what all ranks want."""

    @staticmethod
    def forward(context: Any, tensor: Any, group: Any) -> Any:
        """Return the tensors of all ranks."""
        context.group = group
        parts = [torch.empty_like(tensor) for _ in range(group.size())]
        torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
        return torch.stack(parts)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        """Return the gradient of this rank's tensor."""
        total = gradient.contiguous().clone()
        torch.distributed.all_reduce(total, group=context.group)
        return total[context.group.rank()], None


def reference_layer_spec(config: Any, vp_stage: int | None = None) -> Any:
    """Return megatron-core's local layers of a model's kind with `ReferenceAttention` in each of them."""
    return local_spec_with(ReferenceAttention, config, vp_stage)


def local_spec_with(attention: type, config: Any, vp_stage: int | None = None) -> Any:
    """Return megatron-core's local layers of a model's kind with an attention of ours in each of them.

    `config` is a provider, or a config of parts, which holds those settings in its transformer.
    """
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    config = transformer_of(config)
    spec = get_gpt_decoder_block_spec(
        config, use_transformer_engine=False, normalization=config.normalization, vp_stage=vp_stage
    )
    spec.layer_norm = _norm
    for layer in spec.layer_specs:
        parts, attention_parts = layer.submodules, layer.submodules.self_attention.submodules
        attention_parts.core_attention = attention
        parts.input_layernorm = parts.pre_mlp_layernorm = _norm
        if config.qk_layernorm:
            attention_parts.q_layernorm = attention_parts.k_layernorm = _norm
    return spec


def _norm(config: Any, hidden_size: int, eps: float = 1e-5, **_options: Any) -> Any:
    """Return torch's norm of a model's kind, which says whether its gradients are summed over tensor-parallel ranks.

    megatron-core's own (megatron/core/transformer/torch_norm.py:50 of 0.19.2) refuses sequence parallelism, which asks
    for nothing but this mark (megatron/core/fusions/fused_layer_norm.py sets it on its weights).
    """
    kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
    norm = kind(normalized_shape=hidden_size, eps=eps)
    for weights in norm.parameters():
        weights.sequence_parallel = config.sequence_parallel
    return norm
