"""The shape of a model from the host's settings: weights, width of attention and windows of its layers."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack import geometry
from bridgepack.bridge.bases import base_of, hint_for_no_recipe
from bridgepack.bridge.shipped import is_shipped_model
from bridgepack.config.errors import did_you_mean, quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import release_for
from bridgepack.host.modules import LAYER_SYMBOLS, MOST_LAYERS
from bridgepack.host.vocabularies import vocabulary_of
from bridgepack.planning.activations import Kept, Part, dense_parts, expert_parts, logit_bytes
from bridgepack.records import RunConfig
from bridgepack.records.messages import join, setting
from bridgepack.user_files import read_text

#: Multiple that the host pads vocabularies to, for one rank of tensor parallelism.
_VOCAB_MULTIPLE = 128
#: Of a scan, 7 operations for each number of the state. Source: flop_utils.py of the host, `mamba_layer_flops`.
_SCAN_STEPS = 3.5
_NAME, _NEEDED = setting("model.name"), ("hidden_size", "num_attention_heads", "vocab_size")
#: Key of a config.json -> the host's name. Names that both have are taken as they are.
_OF_HUB = {
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "num_experts": "num_moe_experts",
    "num_local_experts": "num_moe_experts",
    "n_routed_experts": "num_moe_experts",
    "num_experts_per_tok": "moe_router_topk",
    "moe_intermediate_size": "moe_ffn_hidden_size",
    "shared_expert_intermediate_size": "moe_shared_expert_intermediate_size",
    "tie_word_embeddings": "share_embeddings_and_output_weights",
    "qk_nope_head_dim": "qk_head_dim",
    "qk_rope_head_dim": "qk_pos_emb_head_dim",
}
_SAME = ("hidden_size", "num_attention_heads", "vocab_size", "q_lora_rank", "kv_lora_rank", "v_head_dim")
#: Types of models of which every other layer attends to all where config.json does not say it.
_ALTERNATING = ("gemma2", "gpt_oss")
#: Parts of keys of a config.json whose layers have no formula here.
_FOREIGN = ("mamba", "ssm", "linear_num", "rwkv", "hybrid", "index_topk", "compress_ratios")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerShape:
    """One layer; counts are of numbers, norms and routers left out."""

    weights: float  #: weights that every token uses
    routed: float = 0.0  #: weights of all routed experts
    routed_used: float = 0.0  #: weights of the routed experts that one token uses
    scan: float = 0.0  #: multiply-adds of a token that no weight takes part in
    width: float = 0.0  #: heads x head size of full attention, the mean of keys and values; 0 where none attends
    window: int | None = None  #: latest tokens that one attends to; None for all
    kept: Kept  #: what of a token the backward pass needs


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ModelShape:
    """The sizes of a model's parts; each is itself alone, so that what follows from it is kept."""

    hidden_size: int
    num_attention_heads: int
    num_query_groups: int  #: key-value heads
    vocab_size: int  #: padded as the host pads it
    has_tied_embeddings: bool  #: one matrix embeds and gives logits
    num_experts: int  #: experts per layer; 0 for a dense model
    longest: int | None  #: maximum positions of the model; None if unknown
    layers: tuple[LayerShape, ...]
    pattern: str = ""  #: letters of a hybrid model's layers, without stages; empty for others
    logit_bytes: float = 6.0  #: bytes of a logit in the loss
    sends_once: bool = False  #: whether a token goes to each node of its experts once, not once for each expert

    @property
    def embedding(self) -> int:
        """Weights of the embedding matrix, or of the output matrix."""
        return self.hidden_size * self.vocab_size

    @property
    def routed_weights(self) -> float:
        """Weights of all routed experts."""
        return sum(layer.routed for layer in self.layers)

    @property
    def other_weights(self) -> float:
        """Weights without routed experts and embeddings."""
        return sum(layer.weights for layer in self.layers)

    @property
    def num_weights(self) -> float:
        """All weights."""
        return self.other_weights + self.routed_weights + self.embedding * (1 if self.has_tied_embeddings else 2)


def model_shape(recipe: SFTRecipe) -> ModelShape:
    """Return the shape of a recipe's model, without multi-token prediction layers, which packs do not train.

    Known are the recipes of Megatron-Bridge, the models of the hub that they train, and folders with a config.json.

    Raises:
        ConfigError: the model is unknown, or its layers are not supported.
    """
    overrides = recipe.bridge_overrides.get("model", {})
    try:
        return shape_of({**_settings(recipe), **overrides})
    except (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError) as error:
        needs = f"Allowed: a model that states {', '.join(_NEEDED)}. Set what is missing in bridge_overrides.model."
        text = f" is {quote(recipe.model and recipe.model.name)}; its sizes are not known: {error}. {needs}"
        raise ConfigError(join([_NAME, text], "")) from None


def shape_of_run(config: RunConfig) -> ModelShape:
    """Return the shape of the model of a run with settings of the host, as `model_shape`.

    Raises:
        ConfigError: the settings do not have the model's sizes, or its layers are not supported.
    """
    model, tokenizer = config.values.get("model"), config.values.get("tokenizer")
    settings = dict(model) if isinstance(model, Mapping) else {}
    if not settings.get("vocab_size") and isinstance(tokenizer, Mapping):  # the host can take it from the tokenizer
        name = str(tokenizer.get("tokenizer_model"))
        model_facts = release_for(config.bridge_version).facts.model_by_name(name) or {}
        settings["vocab_size"] = model_facts.get("vocab_size") or vocabulary_of(name)
    try:
        return shape_of(settings)
    except (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError) as error:
        raise ConfigError(
            f"model of {config.place} lacks sizes: {error}. Allowed: a model that states {', '.join(_NEEDED)}."
        ) from None


def _settings(recipe: SFTRecipe) -> Mapping[str, Any]:
    if recipe.model is not None and not is_shipped_model(recipe.model) and Path(recipe.model.name).is_dir():
        return hub_settings(Path(recipe.model.name))
    base = base_of(recipe)
    if (model := base.get("model")) is None:
        name = recipe.model.name if recipe.model else ""
        hint = did_you_mean(name, recipe.release.facts.models, "Download its config.json and name that folder.")
        text = (
            f" is {f'{quote(name)}, whose sizes are not known' if name else 'not set'}; allowed: a recipe "
            "of Megatron-Bridge, a model of the hub that its recipes train, e.g. Qwen/Qwen3-8B, or a folder with the "
            f"model's config.json. {hint_for_no_recipe(recipe) or hint}"
        )
        raise ConfigError(join([_NAME, text], ""))
    names = (recipe.model.name if recipe.model else "", recipe.tokenizer.name_or_path)
    like: Mapping[str, Any] = next(filter(None, map(recipe.release.facts.model_by_name, names)), {})
    vocabulary = model.get("vocab_size") or like.get("vocab_size")  # the host can take it from the tokenizer
    vocabulary = vocabulary or vocabulary_of((base["tokenizer"] or {}).get("tokenizer_model"))
    return {**model, "vocab_size": vocabulary, "max_position_embeddings": like.get("seq_length")}


def hub_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a folder's config.json under the host's names.

    Raises:
        ConfigError: the file cannot be read, or has unsupported layers.
    """
    path = folder / "config.json"
    try:
        config = (content := json.loads(read_text(path))).get("text_config", content)
        foreign = sorted(key for key in config if any(part in key for part in _FOREIGN) and config[key])
        kinds = set(config.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
        if foreign or kinds:
            raise ConfigError(
                f"{path} has {', '.join([*foreign, *sorted(kinds)])}; allowed: models of attention and feed-forward "
                "layers. Name a recipe of Megatron-Bridge in model.name."
            )
        return _in_host_names(config)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as a model's config.json: {type(error).__name__}: {error}. Allowed: the file that "
            "the model came with. Download it."
        ) from None


def _in_host_names(config: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: config[key] for key, name in _OF_HUB.items() if config.get(key) is not None}
    values |= {name: config.get(name) for name in _SAME}
    values |= {"gated_linear_unit": True, "multi_latent_attention": config.get("kv_lora_rank") is not None}
    values["max_position_embeddings"] = config.get("max_position_embeddings")
    num_layers = config["num_hidden_layers"]
    dense = config.get("first_k_dense_replace") or 0
    values["moe_layer_freq"] = [int(index >= dense) for index in range(min(num_layers, MOST_LAYERS))]
    if config.get("n_shared_experts"):
        values["moe_shared_expert_intermediate_size"] = config["n_shared_experts"] * config["moe_intermediate_size"]
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        values["window_size"] = config["sliding_window"]
        kinds = config.get("layer_types")
        alternates = 2 if config.get("model_type") in _ALTERNATING else None
        frequency = config.get("sliding_window_pattern") or alternates
        values["window_attn_skip_freq"] = [int(kind == "sliding_attention") for kind in kinds] if kinds else frequency
    return values


def shape_of(values: Mapping[str, Any]) -> ModelShape:
    """Return the shape of a model from its settings under the host's names.

    Raises:
        ConfigError: its attention is not supported.
        KeyError: a size is missing.
    """
    missing = [name for name in _NEEDED if type(values.get(name)) is not int or values[name] < 1]
    if missing or (num_layers := values.get("num_layers") or 0) > MOST_LAYERS:
        raise KeyError(", ".join(missing) or f"num_layers is {quote(num_layers)}, more than any model has")
    heads, layers = values["num_attention_heads"], tuple(_layers(values))
    if not layers:
        raise KeyError("num_layers")
    multiple = values.get("make_vocab_size_divisible_by") or _VOCAB_MULTIPLE
    return ModelShape(
        hidden_size=values["hidden_size"],
        num_attention_heads=heads,
        num_query_groups=values.get("num_query_groups") or heads,
        vocab_size=geometry.ceil_to_multiple(values["vocab_size"], multiple),
        has_tied_embeddings=bool(values.get("share_embeddings_and_output_weights")),
        num_experts=values.get("num_moe_experts") or 0,
        longest=values.get("max_position_embeddings"),
        layers=layers,
        pattern=(values.get("hybrid_layer_pattern") or "").replace("|", ""),
        logit_bytes=logit_bytes(values),
        sends_once=values.get("moe_token_dispatcher_type") == "flex",
    )


def _layers(values: Mapping[str, Any]) -> Iterator[LayerShape]:
    hidden_size = values["hidden_size"]
    for index, (mixer, feed_forward) in enumerate(_kinds(values)):
        weights, scan_or_width = _MIXERS[mixer](values) if mixer else (0.0, 0.0)
        is_attention = mixer == "attention"
        inner, routed_weights, used_weights, parts = _feed_forward(values, feed_forward)
        kept_bytes = Kept.from_layer(hidden_size, parts, has_mixer=bool(mixer), has_feed_forward=bool(feed_forward))
        yield LayerShape(
            weights=weights + inner,
            routed=routed_weights,
            routed_used=used_weights,
            scan=0.0 if is_attention else scan_or_width,
            width=scan_or_width if is_attention else 0.0,
            window=_window(values, index + 1) if is_attention else None,
            kept=kept_bytes,
        )


def _kinds(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    pattern = values.get("hybrid_layer_pattern")
    if pattern:
        return [LAYER_SYMBOLS[symbol] for symbol in pattern.partition("/")[0].replace("|", "")]
    num_layers = values["num_layers"]
    linear = values.get("experimental_attention_variant") == "gated_delta_net"
    is_linear = _flags(values.get("linear_attention_freq") if linear else 1, num_layers, first=False)
    has_experts = _flags(values.get("moe_layer_freq") or 1, num_layers, first=True)
    is_mixture = bool(values.get("num_moe_experts"))
    return [
        (
            "gated_delta_net" if linear and of_linear else "attention",
            "experts" if is_mixture and of_experts else "dense",
        )
        for of_linear, of_experts in zip(is_linear, has_experts, strict=True)
    ]


def _flags(frequency: Any, num_layers: int, *, first: bool) -> list[bool]:
    """Return per layer whether it is of a kind: the first of every `frequency` layers, or all except the last."""
    if isinstance(frequency, int):
        return [(index % frequency == 0) if first else (index + 1) % frequency != 0 for index in range(num_layers)]
    return [bool(flag) for flag in frequency[:num_layers]]


def _attention(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the weights of attention and its width."""
    hidden_size, heads = values["hidden_size"], values["num_attention_heads"]
    if values.get("experimental_attention_variant") == "dsv4_hybrid":
        raise ConfigError(
            "the attention of this model, dsv4_hybrid, has no formula here; allowed: full attention, sliding windows, "
            "latent attention, Mamba and gated delta nets. Plan with measured runs."
        )
    if values.get("multi_latent_attention"):
        head, rotary, value = (values[name] for name in ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"))
        key, rank, query_rank = head + rotary, values["kv_lora_rank"], values.get("q_lora_rank")
        query = query_rank * (hidden_size + heads * key) if query_rank else hidden_size * heads * key
        kv = rank * (hidden_size + heads * (head + value)) + hidden_size * rotary
        return query + kv + heads * value * hidden_size, heads * (key + value) / 2
    head = values.get("kv_channels") or hidden_size // heads
    groups = values.get("num_query_groups") or heads
    gate = heads if values.get("attention_output_gate") else 0
    return hidden_size * head * (2 * heads + gate + 2 * groups), heads * head


def _window(values: Mapping[str, Any], number: int) -> int | None:
    """Return the window of a layer, counted from 1; Gemma has its own patterns."""
    size = values.get("window_size")
    if size is None:
        return None
    window = sum(size) + 1 if isinstance(size, list | tuple) else int(size)
    pattern, frequency = values.get("interleaved_attn_pattern"), values.get("window_attn_skip_freq")
    if pattern:
        frequency = sum(pattern)
    elif frequency is None and "Gemma2" in str(values.get("_target_")):
        return window if number % 2 else None
    if isinstance(frequency, int):
        return window if number % frequency else None
    return window if frequency is None or frequency[number - 1] else None


def _mamba(values: Mapping[str, Any]) -> tuple[float, float]:
    hidden_size, state = values["hidden_size"], values["mamba_state_dim"]
    heads, head = values.get("mamba_num_heads"), values["mamba_head_dim"]
    inner = heads * head if heads else 2 * hidden_size
    weights = hidden_size * (3 * inner + 2 * values["mamba_num_groups"] * state + (heads or inner // head))
    return weights, _SCAN_STEPS * inner * state


def _delta(values: Mapping[str, Any]) -> tuple[float, float]:
    heads, size = values["linear_num_value_heads"], values["linear_value_head_dim"]
    key, value = values["linear_key_head_dim"] * values["linear_num_key_heads"], heads * size
    convolution = values["linear_conv_kernel_dim"] * (2 * key + value)
    return values["hidden_size"] * (2 * key + 3 * value + 2 * heads) + convolution, 4 * heads * size**2


_MIXERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[float, float]]] = {
    "attention": _attention,
    "mamba": _mamba,
    "gated_delta_net": _delta,
}


def _feed_forward(values: Mapping[str, Any], kind: str) -> tuple[float, float, float, tuple[Part, ...]]:
    """Return the weights of all tokens, of routed experts, of those that a token uses, and what can be recomputed."""
    hidden_size, matrices = values["hidden_size"], 3 if values.get("gated_linear_unit") else 2
    if kind == "experts":
        width, topk = values.get("moe_ffn_hidden_size") or values["ffn_hidden_size"], values["moe_router_topk"]
        shared_width, latent = values.get("moe_shared_expert_intermediate_size") or 0, values.get("moe_latent_size")
        expert = matrices * (latent or hidden_size) * width
        weights = matrices * hidden_size * shared_width + 2 * hidden_size * (latent or 0)
        parts = expert_parts(
            width=width * topk,
            shared_width=shared_width,
            num_sent=topk * (latent or hidden_size),
            weights=weights,
            routed_weights=expert * topk,
            is_grouped=bool(values.get("moe_grouped_gemm")),
        )
        return weights, expert * values["num_moe_experts"], expert * topk, parts
    width = values["ffn_hidden_size"] if kind else 0
    weights = matrices * hidden_size * width
    return weights, 0.0, 0.0, dense_parts(width, weights) if kind else ()
