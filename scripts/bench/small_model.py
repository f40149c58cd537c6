"""A plain transformer for scripts/gpu: packed rows attend within their sequences, other rows are one sequence each."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

_ROPE_BASE = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the model and of what is measured."""

    hidden_size: int
    num_layers: int
    num_attention_heads: int
    ffn_hidden_size: int
    vocab_size: int
    pack_sizes: tuple[int, ...]
    num_sequences: int  #: of the mixture, for each pack size
    num_repeats: int  #: timed steps; the median counts
    num_ranks: int  #: data-parallel ranks whose waiting is compared
    packs_per_step: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens for the model: either one row with the offsets of its sequences, or rows of one sequence each."""

    tokens: torch.Tensor  #: shape [rows, width], int64
    labels: torch.Tensor
    loss_mask: torch.Tensor
    positions: torch.Tensor
    offsets: torch.Tensor | None = None  #: shape [num_sequences + 1], int32; None for rows of one sequence
    longest: int = 0  #: tokens of the longest sequence


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return causal attention within each sequence; shapes [rows, width, heads, head size]."""
    if batch.offsets is None:
        parts = (part.transpose(1, 2) for part in (query, key, value))
        return scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)
    flat = [part[0] for part in (query, key, value)]
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        offsets, longest = batch.offsets, batch.longest
        return varlen_attn(*flat, offsets, offsets, longest, longest, window_size=(-1, 0))[None]
    bounds = batch.offsets.tolist()
    found = [
        scaled_dot_product_attention(*(part[start:stop].transpose(0, 1) for part in flat), is_causal=True)
        for start, stop in pairwise(bounds)
    ]
    return torch.cat([part.transpose(0, 1) for part in found])[None]


def rotated(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return queries or keys turned by their positions within their sequence (rotary embedding)."""
    half = states.shape[-1] // 2
    speeds = _ROPE_BASE ** (-torch.arange(half, device=states.device, dtype=torch.float32) / half)
    angles = positions[..., None, None].float() * speeds
    first, second = states.float().split(half, dim=-1)
    turned = (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
    return torch.cat(turned, dim=-1).to(states.dtype)


class Layer(nn.Module):
    """Attention and a feed-forward part, each after a norm and with a residual."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.num_heads = sizes.num_attention_heads
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.hidden_size) for _ in range(2))
        self.qkv = nn.Linear(sizes.hidden_size, 3 * sizes.hidden_size, bias=False)
        self.out = nn.Linear(sizes.hidden_size, sizes.hidden_size, bias=False)
        self.up = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size, bias=False)
        self.down = nn.Linear(sizes.ffn_hidden_size, sizes.hidden_size, bias=False)

    def forward(self, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the states after the layer; shape [rows, width, hidden size]."""
        heads = self.qkv(self.norms[0](states)).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.unbind(dim=2)
        turned = (rotated(part, batch.positions) for part in (query, key))
        states = states + self.out(attention(*turned, value, batch).flatten(2))
        return states + self.down(gelu(self.up(self.norms[1](states))))


class Model(nn.Module):
    """A decoder with the summed loss of the trained tokens."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_layers))
        self.norm = nn.RMSNorm(sizes.hidden_size)
        self.head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the summed loss."""
        states = self.embedding(batch.tokens)
        for layer in self.layers:
            states = layer(states, batch)
        is_trained = batch.loss_mask.bool()  # logits of other tokens are not needed
        logits = self.head(self.norm(states[is_trained])).float()
        return cross_entropy(logits, batch.labels[is_trained], reduction="sum")
