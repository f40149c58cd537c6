"""What a field of a model's config changes over the same weights: a table made by building and running tiny models.

`function`: the weights load by name, and the model computes something else. `shape`: they do not load. `free`: they
load, and the logits are equal; such are fusions, initialisation, dropout (outside training), coefficients of losses.
`refused`: a CPU cannot build or run it; the message stands beside it. `read` are effects that no CPU shows, from the
source. `model_fields.json` has a table for each release; tests/support/model_fields.py makes the cells.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bridgepack.host.modules import MOST_LAYERS
from bridgepack.host.release import HostRelease

type Effect = Literal["function", "shape"]
#: The classes of models that the table has, each with one tiny model.
type ModelKind = Literal["dense", "experts", "latent", "hybrid"]
TABLE = Path(__file__).with_suffix(".json")
_EFFECTS: tuple[Effect, ...] = ("shape", "function")
#: Fields with an effect that training chooses: how positions are scaled to longer sequences.
POSITION_SCALING = frozenset(
    {
        *("rope_scaling", "rope_scaling_factor", "rotary_scaling_factor", "seq_len_interpolation_factor", "rope_type"),
        *("mscale", "mscale_all_dim", "beta_fast", "beta_slow", "original_max_position_embeddings"),
        *("yarn_rotary_scaling_factor", "yarn_original_max_position_embeddings", "yarn_beta_fast", "yarn_beta_slow"),
        *("yarn_mscale", "yarn_mscale_all_dim", "yarn_correction_range_round_to_int", "max_position_embeddings"),
    }
)
#: Kinds of positions of which one is the other, scaled.
_ROTARY = frozenset({"rope", "yarn"})
#: Fields with an effect that is judged elsewhere, or is noise that training chooses.
_JUDGED_ELSEWHERE = frozenset(
    {
        *("vocab_size", "should_pad_vocab", "make_vocab_size_divisible_by"),  # by the rules on tokenizers
        *("moe_router_force_load_balancing", "moe_router_force_biased"),  # BP744
        *("mtp_num_layers", "seq_length", "moe_input_jitter_eps"),
    }
)


def kind_of_model(model: Mapping[str, Any]) -> ModelKind:
    """Return the kind of a model by its settings."""
    if model.get("hybrid_layer_pattern") or model.get("hybrid_override_pattern"):
        return "hybrid"
    if model.get("multi_latent_attention"):
        return "latent"
    return "experts" if model.get("num_moe_experts") else "dense"


def changed_fields(
    model: Mapping[str, Any], base: Mapping[str, Any], release: HostRelease
) -> Iterator[tuple[str, Effect]]:
    """Yield the fields in which a model differs from the one whose weights it gets, with what that changes.

    What training chooses is left out. So are fields that one of the two does not state, and values of other kinds:
    objects, and a list beside a number.
    """
    kind = kind_of_model({**model, **base})
    for name in base:
        if name not in model or name in POSITION_SCALING or name in _JUDGED_ELSEWHERE:
            continue
        values = _comparable(name, model), _comparable(name, base)
        if values[0] == values[1] or not _are_alike(*values):
            continue
        if name == "position_embedding_type" and _ROTARY.issuperset(values):
            continue
        if name == "num_layers" and kind == "hybrid":  # the pattern decides
            continue
        if (effect := effect_of(name, kind, release, values)) is not None:
            yield name, effect


def effect_of(name: str, kind: ModelKind, release: HostRelease, values: tuple[Any, ...] = ()) -> Effect | None:
    """Return what another value of a field changes in a kind of model; None where nothing is seen.

    Of a field with names, the cells of both names count, as in `softmax_type=learnable`.
    """
    table = _tables()[release.name]
    cells = [table["fields"].get(key, {}) for key in (*(f"{name}={value}" for value in values), name)]
    effects = {cell.get(kind) for cell in cells} | {table["read"].get(name, {}).get("effect")}
    return next((effect for effect in _EFFECTS if effect in effects), None)


def changed_effects(old: HostRelease, new: HostRelease) -> Iterator[tuple[str, str, str, str]]:
    """Yield field, kind of model, and what another value changes in each of two releases, where that differs."""
    before, after = (_tables()[release.name]["fields"] for release in (old, new))
    for name in before.keys() & after.keys():
        for kind in ("dense", "experts", "latent", "hybrid"):
            sides = before[name].get(kind, "absent"), after[name].get(kind, "absent")
            if sides[0] != sides[1]:
                yield name, kind, *sides


def _are_alike(first: Any, second: Any) -> bool:
    values = (first, second)
    if any(isinstance(value, Mapping) for value in values):
        return False
    return None in values or isinstance(first, list) == isinstance(second, list)


def _comparable(name: str, model: Mapping[str, Any]) -> Any:
    """Return a field's value as the host reads it: what null stands for, a function's name, a list for a frequency."""
    value = model.get(name)
    if isinstance(value, Mapping) and isinstance(value.get("_name_"), str):
        value = value["_name_"]
    if name == "activation_func":
        target = value.get("_target_") if isinstance(value, Mapping) else value
        return str(target).rpartition(".")[2]
    if name == "add_qkv_bias":  # core/transformer/attention.py: linear_qkv has a bias with either
        return bool(value or model.get("add_bias_linear"))
    if name == "hybrid_layer_pattern" and isinstance(value, str):
        return value.partition("/")[0].replace("|", "")  # stages, and layers that predict further tokens
    num_layers = model.get("num_layers")
    if name == "moe_layer_freq" and type(value) is int and value > 0 and type(num_layers) is int:
        return [int(layer % value == 0) for layer in range(min(num_layers, MOST_LAYERS))]
    if value is None and name in _NULLS:
        return _NULLS[name](model)
    return list(value) if isinstance(value, (list, tuple)) else value


def _quotient(model: Mapping[str, Any]) -> Any:
    width, heads = model.get("hidden_size"), model.get("num_attention_heads")
    return width // heads if type(width) is int and type(heads) is int and heads else None


#: Field -> what null stands for. Source: core/transformer/transformer_config.py (__post_init__)
_NULLS: Mapping[str, Any] = {
    "num_query_groups": lambda model: model.get("num_attention_heads"),
    "kv_channels": _quotient,
    "ffn_hidden_size": lambda model: 4 * model["hidden_size"] if type(model.get("hidden_size")) is int else None,
    "moe_ffn_hidden_size": lambda model: _comparable("ffn_hidden_size", model),
    "num_moe_experts": lambda _: 0,
    "moe_shared_expert_intermediate_size": lambda _: 0,
    "moe_router_topk_scaling_factor": lambda _: 1.0,
}


@cache
def _tables() -> Mapping[str, Any]:
    tables: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return tables
