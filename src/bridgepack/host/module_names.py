"""What linear layers are called elsewhere, and what the host calls them in each kind of model.

The host fuses queries, keys and values, and gate and up projections. Names elsewhere are those of Hugging Face's
models and of its PEFT library; the host's own names of other kinds of models count as well.
"""

import re
from collections.abc import Mapping

from bridgepack.host.modules import CANONICAL, HOST_NAMES, Architecture, is_match, pattern_of

#: Name elsewhere -> what the layer does.
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("q_proj", "query", "q", "linear_q", "linear_q_proj", "wq"), "query"),
    **dict.fromkeys(("k_proj", "v_proj", "kv_proj", "key", "value", "linear_k", "linear_v", "wk", "wv"), "key-value"),
    **dict.fromkeys(
        ("qkv_proj", "qkv", "query_key_value", "c_attn", "Wqkv", "wqkv", "W_pack", "attn_qkv", "linear_qkv"), "all"
    ),
    **dict.fromkeys(("q_a_proj", "wq_a", "linear_q_down_proj"), "query-down"),
    **dict.fromkeys(("q_b_proj", "wq_b", "linear_q_up_proj"), "query-up"),
    **dict.fromkeys(("kv_a_proj_with_mqa", "kv_a_proj", "wkv_a", "linear_kv_down_proj"), "key-value-down"),
    **dict.fromkeys(("kv_b_proj", "wkv_b", "linear_kv_up_proj"), "key-value-up"),
    **dict.fromkeys(("qkv_a_proj", "linear_qkv_down_proj"), "all-down"),
    **dict.fromkeys(("o_proj", "out_proj", "wo", "dense", "attn_out", "linear_proj"), "out"),
    **dict.fromkeys(
        ("gate_proj", "up_proj", "gate_up_proj", "gate_and_up_proj", "fc1", "c_fc", "dense_h_to_4h", "w1", "w3"), "up"
    ),
    **dict.fromkeys(("fc_in", "linear_fc1", "linear_fc1_up", "linear_fc1_gate"), "up"),
    **dict.fromkeys(("down_proj", "fc2", "fc_out", "dense_4h_to_h", "w2", "linear_fc2"), "down"),
    "c_proj": "out-and-down",
    **dict.fromkeys(("mlp", "feed_forward", "ffn"), "up-and-down"),
    **dict.fromkeys(("self_attn", "attention", "self_attention", "attn"), "all-and-out"),
    **dict.fromkeys(
        ("in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj"), "mixer-in"
    ),
    **dict.fromkeys(("x_proj", "dt_proj"), "mixer-in"),
    "mixer": "mixer",
    **dict.fromkeys(("gate", "router"), "router"),
    **dict.fromkeys(("lm_head", "embed_out", "output_layer"), "head"),
}
_LATENT: Mapping[str, tuple[str, ...]] = {
    "key-value": ("linear_kv_down_proj", "linear_kv_up_proj"),
    "key-value-down": ("linear_kv_down_proj",),
    "key-value-up": ("linear_kv_up_proj",),
    "out": ("linear_proj",),
}
#: Kind of attention -> what a layer does -> its names there.
_ATTENTION: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "attention": {
        **dict.fromkeys(("query", "query-down", "query-up", "key-value", "key-value-down"), ("linear_qkv",)),
        **dict.fromkeys(("key-value-up", "all", "all-down"), ("linear_qkv",)),
        "out": ("linear_proj",),
    },
    "mla": {
        **_LATENT,
        **dict.fromkeys(("query", "query-down", "query-up"), ("linear_q_proj",)),
        "all": ("linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj"),
        "all-down": ("linear_q_proj", "linear_kv_down_proj"),
    },
    "mla_q": {
        **_LATENT,
        "query": ("linear_q_down_proj", "linear_q_up_proj"),
        "query-down": ("linear_q_down_proj",),
        "query-up": ("linear_q_up_proj",),
        "all": ("linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj"),
        "all-down": ("linear_q_down_proj", "linear_kv_down_proj"),
    },
    "mla_fused": {
        **dict.fromkeys(("query-down", "key-value-down", "all-down"), ("linear_qkv_down_proj",)),
        "query": ("linear_qkv_down_proj", "linear_q_up_proj"),
        "query-up": ("linear_q_up_proj",),
        "key-value": ("linear_qkv_down_proj", "linear_kv_up_proj"),
        "key-value-up": ("linear_kv_up_proj",),
        "all": ("linear_qkv_down_proj", "linear_q_up_proj", "linear_kv_up_proj"),
        "out": ("linear_proj",),
    },
}
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "up": ("linear_fc1",),
    "down": ("linear_fc2",),
    "out-and-down": ("linear_proj", "linear_fc2"),
    "up-and-down": ("linear_fc1", "linear_fc2"),
    "mixer-in": ("in_proj",),
    "mixer": ("in_proj", "out_proj"),
    "router": ("router",),
    "head": ("output_layer",),
}
#: Parts of paths elsewhere -> here.
_PLACES = {"self_attn": "self_attention", "model.layers": "decoder.layers", "block_sparse_moe": "mlp"}


def equivalent_targets(target: str, architecture: Architecture, adapter: str) -> tuple[str, ...]:
    """Return the targets of a model that stand for one with another model's names; empty if there are none."""
    if target == "all-linear":
        return architecture.targets(adapter)
    leaf = re.split(r"[.*]", target)[-1]
    role, attention = ROLES.get(leaf, ""), next((mixer for mixer in architecture.mixers if mixer in _ATTENTION), "")
    roles = {**_ELSEWHERE, **_ATTENTION.get(attention, {})}
    roles["all-and-out"] = (*roles.get("all", ()), *roles.get("out", ()))
    names = roles.get(role, ())
    place = target.removesuffix(leaf)
    for elsewhere, place_here in _PLACES.items():
        place = place.replace(elsewhere, place_here)
    if adapter == "CanonicalLoRA":
        names = tuple(part for name in names for part in _parts(name))
    return tuple(place + name for name in names if is_target(place + name, architecture, adapter))


def is_foreign(target: str) -> bool:
    """Return whether a target has a name from elsewhere that no model of the host has in its language part."""
    leaf = re.split(r"[.*]", target)[-1]
    return leaf in ROLES and leaf not in HOST_NAMES


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part, linear in CANONICAL.items() if linear == name) or (name,)


def is_target(target: str, architecture: Architecture, adapter: str) -> bool:
    """Return whether a target is for any linear layer of the model; what is no pattern is not."""
    pattern = pattern_of(target, adapter)
    try:
        return any(is_match(pattern, linear) for linear in architecture.linears)
    except re.error:
        return False
