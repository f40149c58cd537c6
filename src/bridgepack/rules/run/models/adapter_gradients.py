"""Which trained weights of adapters get a gradient when parts of a frozen model are recomputed.

A recomputed part runs backward only if one of its inputs requires a gradient. Adapters freeze the embedding, so up to
the first adapter nothing does. The host lets the input of its layers require one, but only where
`model.recompute_method` is set, as full recomputation does; some releases leave out hybrid models
(`HostRelease.frees_hybrid_inputs`). Later pipeline stages receive inputs that do.

Source: megatron-core 0.19.2, tensor_parallel/random.py (CheckpointFunction, CheckpointWithoutOutput),
transformer/transformer_layer.py, transformer/moe/moe_layer.py, transformer/multi_latent_attention.py;
megatron-bridge 0.6.2, peft/recompute.py.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from bridgepack.host.modules import Architecture, Linear

#: Mixers whose input norm is a module of its own, which `layernorm` recomputes; others fuse it into a linear layer.
_OWN_NORM = frozenset({"mla", "mla_q"})
#: Linear layers that queries, and keys and values, of latent attention depend on.
_QUERIES = frozenset({"linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_qkv_down_proj"})
_KEYS = frozenset({"linear_kv_down_proj", "linear_kv_up_proj", "linear_qkv_down_proj"})
_LATENT = frozenset({"mla", "mla_q", "mla_fused"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """What a backward pass reaches in the first stage."""

    without: tuple[Linear, ...]  #: linear layers with an adapter that gets no gradient
    #: (entry of recompute_modules, layer) whose recomputation raises: its input is frozen, or a part of its output
    broken: tuple[tuple[str, int], ...]


def gradients_of(
    architecture: Architecture,
    adapter_linears: Collection[Linear],
    modules: Collection[str],
    num_layers: int,
    *,
    num_recomputed: int = 0,
) -> Gradients:
    """Return what backward reaches in the first layers of a model whose input requires no gradient.

    Args:
        architecture: the model.
        adapter_linears: linear layers with an adapter.
        modules: entries of `recompute_modules`.
        num_layers: layers of the first stage.
        num_recomputed: first layers that are recomputed as a whole.
    """
    walk = _Walk(modules=frozenset(modules), adapter_linears=frozenset(adapter_linears), num_recomputed=num_recomputed)
    first_linears = [
        linear for linear in architecture.linears if linear.layer is not None and linear.layer < num_layers
    ]
    for layer, linears in groupby(first_linears, key=lambda linear: linear.layer):
        of_layer = list(linears)
        for part, linears_of_part in groupby(of_layer, key=lambda linear: linear.part):
            walk.part(part, list(linears_of_part), layer or 0)
    return Gradients(without=tuple(walk.without), broken=tuple(walk.broken))


class _Walk:
    """A forward pass through layers, which knows whether the hidden states require a gradient."""

    def __init__(self, *, modules: frozenset[str], adapter_linears: frozenset[Linear], num_recomputed: int) -> None:
        self._modules, self._trained, self._num_recomputed = modules, adapter_linears, num_recomputed
        self._requires = False
        self.without: list[Linear] = []
        self.broken: list[tuple[str, int]] = []

    def part(self, part: str, linears: list[Linear], layer: int) -> None:
        """Go through a mixer or a feed-forward part."""
        if layer < self._num_recomputed:
            self.without += [linear for linear in linears if linear in self._trained]
            return
        before = self._requires
        dead = len(self.without)
        alive = list(self._experts(linears) if part == "experts" else self._in_order(linears))
        names = {linear.name for linear in alive}
        has_own_norm = part in _OWN_NORM or part == "experts"
        if has_own_norm and "layernorm" in self._modules and alive and not before:
            self.broken.append(("layernorm", layer))
        if part == "gated_delta_net" and "gdn_norm_out" in self._modules and names == {"out_proj"} and not before:
            self.broken.append(("gdn_norm_out", layer))
        is_reached = "mla_up_proj" in self._modules and part in _LATENT and not before and len(self.without) == dead
        if is_reached and bool(names & _QUERIES) != bool(names & _KEYS):
            self.broken.append(("mla_up_proj", layer))
        moe_names = {linear.name for linear in alive if linear.region == "moe"}
        is_activation_frozen = not moe_names & {"linear_fc1", "router", "fc1_latent_proj"}
        if "moe_act" in self._modules and "linear_fc2" in moe_names and is_activation_frozen and not before:
            self.broken.append(("moe_act", layer))

    def _in_order(self, linears: Iterable[Linear]) -> Iterator[Linear]:
        """Yield the trained layers that get a gradient, one after the other."""
        for region, linears_of_region in groupby(linears, key=lambda linear: linear.region):
            adapter_linears = [linear for linear in linears_of_region if linear in self._trained]
            if region in self._modules and not self._requires:
                self.without += adapter_linears
                continue
            self._requires = self._requires or bool(adapter_linears)
            yield from adapter_linears

    def _experts(self, linears: Iterable[Linear]) -> Iterator[Linear]:
        """Yield the trained layers that get a gradient; shared experts have the same input as the router."""
        adapter_linears = [linear for linear in linears if linear in self._trained]
        dead = set() if self._requires else self._modules & {"moe", "shared_experts"}
        if "moe" in dead:
            dead = dead | {"shared_experts"}
        self.without += [linear for linear in adapter_linears if linear.region in dead]
        alive = [linear for linear in adapter_linears if linear.region not in dead]
        self._requires = self._requires or bool(alive)
        yield from alive
