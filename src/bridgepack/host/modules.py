"""The linear layers of the host's models that adapters can wrap, layer by layer, by the settings of a model.

Source: megatron-core 0.19.2, models/gpt/gpt_layer_specs.py, models/gpt/experimental_attention_variant_module_specs.py,
models/hybrid/hybrid_layer_specs.py; megatron-bridge 0.6.2, peft/module_matcher.py. A contract test builds tiny models
of every kind with the host and compares.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from bridgepack.host.release import HostRelease


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A linear layer that adapters can wrap."""

    path: str  #: in the model: `decoder.layers.0.self_attention.linear_qkv`
    name: str  #: last part of the path
    layer: int | None  #: index of the decoder layer; None outside the decoder
    part: str  #: what it belongs to: a key of `MIXERS` or `FEEDS`, or `output`, `prediction`
    #: entry of `recompute_modules` whose recomputation covers it as part of a whole; empty if there is none
    region: str = ""


#: Mixer of a layer -> (path in the layer, region), in the order of the forward pass.
MIXERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "attention": (("self_attention.linear_qkv", ""), ("self_attention.linear_proj", "")),
    "mla": (
        ("self_attention.linear_kv_down_proj", ""),
        ("self_attention.linear_q_proj", "mla_up_proj"),
        ("self_attention.linear_kv_up_proj", "mla_up_proj"),
        ("self_attention.linear_proj", ""),
    ),
    "mla_q": (
        ("self_attention.linear_q_down_proj", ""),
        ("self_attention.linear_kv_down_proj", ""),
        ("self_attention.linear_q_up_proj", "mla_up_proj"),
        ("self_attention.linear_kv_up_proj", "mla_up_proj"),
        ("self_attention.linear_proj", ""),
    ),
    "mla_fused": (
        ("self_attention.linear_qkv_down_proj", ""),
        ("self_attention.linear_q_up_proj", "mla_up_proj"),
        ("self_attention.linear_kv_up_proj", "mla_up_proj"),
        ("self_attention.linear_proj", ""),
    ),
    "gated_delta_net": (("self_attention.in_proj", ""), ("self_attention.out_proj", "")),
    "mamba": (("mixer.in_proj", ""), ("mixer.out_proj", "")),
}
#: Feed-forward part of a layer -> the same; `experts.` stands for every expert.
FEEDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "dense": (("mlp.linear_fc1", "mlp"), ("mlp.linear_fc2", "mlp")),
    "experts": (("mlp.router", "moe"), ("mlp.experts.linear_fc1", "moe"), ("mlp.experts.linear_fc2", "moe")),
}
_SHARED = (("mlp.shared_experts.linear_fc1", "shared_experts"), ("mlp.shared_experts.linear_fc2", "shared_experts"))
_LATENT = (("mlp.fc1_latent_proj", "moe"), ("mlp.fc2_latent_proj", "moe"))
#: Of sparse attention that chooses keys by an indexer (`dsa`).
_INDEXER = tuple(
    (f"self_attention.core_attention.indexer.{name}", "")
    for name in ("linear_wq_b", "linear_wk", "linear_weights_proj")
)
#: Names that linear layers have in some model, with those of `CanonicalLoRA`.
HOST_NAMES = frozenset(
    {
        *(path.rpartition(".")[2] for paths in (*MIXERS.values(), *FEEDS.values()) for path, _ in paths),
        *(path.rpartition(".")[2] for path, _ in (*_SHARED, *_LATENT, *_INDEXER)),
        *("output_layer", "eh_proj", "linear_q", "linear_k", "linear_v", "linear_fc1_up", "linear_fc1_gate"),
    }
)
#: Far more layers than any model has.
MOST_LAYERS = 10_000
#: Symbol of a hybrid layer pattern -> mixer or feed-forward part of that layer; `D` and `+` are latent attention.
#: Source: megatron-core 0.19.2, models/hybrid/hybrid_layer_allocation.py, `Symbols`.
LAYER_SYMBOLS: Mapping[str, tuple[str, str]] = {
    "M": ("mamba", ""),
    "G": ("gated_delta_net", ""),
    "*": ("attention", ""),
    "-": ("", "dense"),
    "E": ("", "experts"),
}
#: Symbols of layers with latent attention, sparse or not.
LATENT_SYMBOLS = "D+"
#: Adapters by name of their class, with the targets that they have where none are set.
_ALL = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
DEFAULT_TARGETS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("LoRA", "VLMLoRA", "DoRA"), _ALL),
    "CanonicalLoRA": (
        *("linear_q", "linear_k", "linear_v", "linear_proj", "linear_fc1_up", "linear_fc1_gate", "linear_fc2"),
    ),
}
#: Linear layers whose inputs tensor-parallel ranks share, so that none of them has a whole row of the weight.
SPLITS_INPUTS = frozenset({"linear_proj", "linear_fc2", "out_proj"})
#: Names that `CanonicalLoRA` gives to parts of one linear layer -> the layer.
CANONICAL: Mapping[str, str] = {
    **dict.fromkeys(("linear_q", "linear_k", "linear_v"), "linear_qkv"),
    **dict.fromkeys(("linear_fc1_up", "linear_fc1_gate"), "linear_fc1"),
}
#: Targets, as the host's own lists have them.
_ORDER = (
    *("linear_qkv", "linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_qkv_down_proj"),
    *("linear_kv_down_proj", "linear_kv_up_proj", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj"),
)
_TEXT_CLASSES = (
    *("GPTModelProvider", "MLAModelProvider", "HybridModelProvider", "MambaModelProvider", "ExaoneMoeModelProvider"),
    *("Gemma2ModelProvider", "Gemma3ModelProvider", "GemmaModelProvider", "Gemma4ModelProvider"),
    *("MiniMaxM3ModelProvider", "MistralModelProvider", "OlMoEModelProvider", "SarvamMLAModelProvider"),
    *("SarvamMoEModelProvider", "Step35ModelProvider", "BridgeGPTModelConfig"),
)
_VISION_CLASSES = (
    *("Exaone45ModelProvider", "Gemma3VLModelProvider", "Gemma4VLModelProvider", "GLM45VModelProvider"),
    *("KimiK25VLModelProvider", "MiniMaxM3VLModelProvider", "Ministral3ModelProvider", "Qwen25VLModelProvider"),
    *("Qwen2AudioModelProvider", "Qwen3VLModelProvider", "Qwen3VLMoEModelProvider", "Qwen35VLModelProvider"),
    *("Qwen35VLMoEModelProvider", "Step37ModelProvider"),
)
#: Model class -> where its language model is; `HostRelease.language_models` says where a later release has it.
LANGUAGE_MODEL: Mapping[str, str] = {
    **dict.fromkeys(_TEXT_CLASSES, ""),
    **dict.fromkeys(_VISION_CLASSES, "language_model."),
    **dict.fromkeys(("Qwen3OmniModelProvider", "Qwen25OmniModelProvider"), "thinker.language_model."),
    **dict.fromkeys(
        ("NemotronVLModelProvider", "NemotronOmniModelProvider", "NemotronOmniLlavaModelProvider"),
        "llava_model.language_model.",
    ),
}
#: Values of `experimental_attention_variant` with gated delta net layers; gdn2 has gates of its own for each channel.
#: Source: megatron/core/ssm/gated_delta_net of 0.19.2 and of main.
DELTA_NETS = frozenset({"gated_delta_net", "gdn2"})
#: Attention variants whose layers are listed here.
_KNOWN_VARIANTS = (None, "gated_delta_net", "dsa")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a model's layers are made of."""

    prefix: str  #: where its language model is; empty for text models
    layers: tuple[tuple[str, str], ...]  #: mixer and feed-forward part of every decoder layer; empty for none
    linears: tuple[Linear, ...]  #: of the whole language model, in the order of the forward pass

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the linear layers, each once."""
        return tuple(dict.fromkeys(linear.name for linear in self.linears))

    @cached_property
    def mixers(self) -> Mapping[str, int]:
        """Mixer -> number of layers that have it."""
        names = [mixer for mixer, _ in self.layers if mixer]
        return {mixer: names.count(mixer) for mixer in dict.fromkeys(names)}

    @property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return any(feed == "experts" for _, feed in self.layers)

    def inputs_of(self, mixer: str) -> tuple[str, ...]:
        """Return the names of a mixer's linear layers before `linear_proj`, or all of them where it has none."""
        names = [path.rpartition(".")[2] for path, _ in MIXERS[mixer]]
        return tuple(name for name in names if name != "linear_proj")

    def targets(self, adapter: str, *, is_split: bool = False) -> tuple[str, ...]:
        """Return the targets that follow the architecture: its mixers' and MLPs' linear layers.

        `DoRA` cannot wrap experts, and with tensor parallelism (`is_split`) neither the projections down nor what
        splits its inputs.
        """
        names = {name for mixer in self.mixers for name in (*self.inputs_of(mixer), "linear_proj")}
        if adapter != "DoRA" or not self.has_experts:
            names |= {"linear_fc1", "linear_fc2"}
        if adapter == "DoRA" and is_split:
            names -= {name for name in names if name.endswith("down_proj") or name in SPLITS_INPUTS}
        targets = [name for name in _ORDER if name in names & set(self.names)]
        if adapter != "CanonicalLoRA":
            return tuple(targets)
        parts = {linear: [part for part, of in CANONICAL.items() if of == linear] for linear in set(CANONICAL.values())}
        return tuple(part for name in targets for part in parts.get(name, [name]))


def architecture_of(model: Mapping[str, Any], release: HostRelease | None = None) -> Architecture | None:
    """Return what the layers of a model are made of, from its settings; None for classes that are not covered.

    Without a release, the language model is where 0.6 has it.
    """
    places = LANGUAGE_MODEL if release is None else {**LANGUAGE_MODEL, **release.language_models}
    prefix = places.get(str(model.get("_target_")).rpartition(".")[2])
    if prefix is None or model.get("experimental_attention_variant") not in _KNOWN_VARIANTS:
        return None
    layers = _layers(model)
    if not layers:
        return None
    linears = _linears_of(model, prefix, layers)
    return Architecture(prefix=prefix, layers=layers, linears=(*linears, *_around(model, prefix, layers[-1])))


def _layers(model: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pattern = model.get("hybrid_layer_pattern") or model.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        symbols = {**LAYER_SYMBOLS, **dict.fromkeys(LATENT_SYMBOLS, (_latent_attention(model), ""))}
        layers = [symbols.get(symbol) for symbol in pattern.partition("/")[0].replace("|", "")]
        return tuple(layer for layer in layers if layer is not None) if None not in layers else ()
    number = model.get("num_layers")
    if not isinstance(number, int):
        return ()
    is_latent = bool(model.get("multi_latent_attention"))
    usual = _latent_attention(model) if is_latent else "attention"
    is_linear = [False] * number
    if model.get("experimental_attention_variant") == "gated_delta_net":
        is_linear = _flags(model.get("linear_attention_freq"), number, is_first=False)
    has_experts = [False] * number
    if model.get("num_moe_experts"):
        has_experts = _flags(model.get("moe_layer_freq") or 1, number, is_first=True)
    return tuple(
        ("gated_delta_net" if of_linear else usual, "experts" if of_experts else "dense")
        for of_linear, of_experts in zip(is_linear, has_experts, strict=False)
    )


def _latent_attention(model: Mapping[str, Any]) -> str:
    if not model.get("q_lora_rank"):
        return "mla"
    return "mla_fused" if model.get("mla_down_proj_fusion") else "mla_q"


def _flags(frequency: Any, number: int, *, is_first: bool) -> list[bool]:
    """Return per layer whether it is of a kind: the first of every `frequency` layers, or all but the last of them."""
    if isinstance(frequency, int) and frequency > 0:
        return [(index % frequency == 0) if is_first else ((index + 1) % frequency != 0) for index in range(number)]
    return [bool(flag) for flag in frequency] if isinstance(frequency, list) else []


def _linears_of(model: Mapping[str, Any], prefix: str, layers: tuple[tuple[str, str], ...]) -> tuple[Linear, ...]:
    has_indexer = model.get("experimental_attention_variant") == "dsa"
    feeds = tuple((feed, tuple(_feed_paths(model, feed))) for feed in dict.fromkeys(feed for _, feed in layers))
    return _layer_linears(prefix, layers, feeds, has_indexer)


@lru_cache(maxsize=128)  # rules ask several times for the layers of a model, which may be a hundred
def _layer_linears(
    prefix: str,
    layers: tuple[tuple[str, str], ...],
    feeds: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    has_indexer: bool,
) -> tuple[Linear, ...]:
    """Return the linear layers of all layers; `feeds` has (path, region) of each kind of MLP."""
    paths_of_feed, linears = dict(feeds), []
    for index, (mixer, feed) in enumerate(layers):
        paths_of_mixer = list(MIXERS.get(mixer, ()))
        if paths_of_mixer and has_indexer:
            paths_of_mixer[-1:-1] = _INDEXER
        for part, paths in ((mixer, paths_of_mixer), (feed, paths_of_feed[feed])):
            for path, region in paths:
                place, name = f"{prefix}decoder.layers.{index}.{path}", path.rpartition(".")[2]
                linears.append(Linear(path=place, name=name, layer=index, part=part, region=region))
    return tuple(linears)


def _feed_paths(model: Mapping[str, Any], feed: str) -> list[tuple[str, str]]:
    paths = list(FEEDS.get(feed, ()))
    if feed != "experts":
        return paths
    if not model.get("moe_grouped_gemm", True):
        paths = [_path_of_one_expert(path) for path in paths]
    latent = _LATENT if model.get("moe_latent_size") else ()
    return [*paths, *latent, *(_SHARED if model.get("moe_shared_expert_intermediate_size") else ())]


def _path_of_one_expert(part: tuple[str, str]) -> tuple[str, str]:
    path, region = part
    return path.replace("experts.", "experts.local_experts.0."), region


def _around(model: Mapping[str, Any], prefix: str, last: tuple[str, str]) -> Iterator[Linear]:
    """Yield the linear layers after the decoder: those of multi-token prediction, and the output layer."""
    if model.get("mtp_num_layers"):
        of_layer = list(_linears_of(model, prefix, (last,)))
        paths = ["mtp.layers.0.eh_proj"]
        paths += [f"mtp.layers.0.mtp_model_layer.{linear.path.partition('layers.0.')[2]}" for linear in of_layer]
        for path in paths:
            yield Linear(path=f"{prefix}{path}", name=path.rpartition(".")[2], layer=None, part="prediction")
    yield Linear(path=f"{prefix}output_layer", name="output_layer", layer=None, part="output")


def is_match(target: str, linear: Linear) -> bool:
    """Return whether a target is for a linear layer: by its name, or its whole path where `*` stands for any text.

    Source: megatron-bridge 0.6.2, peft/module_matcher.py:115 and peft/utils.py (wildcard_match).

    Raises:
        re.error: the target is no pattern.
    """
    pattern = "^" + target.replace("*", "(.*)") + "$"
    return target == linear.name or re.match(pattern, linear.path) is not None


def pattern_of(target: str, adapter: str) -> str:
    """Return what an adapter's class looks for; `CanonicalLoRA` has names for parts of a linear layer.

    Source: megatron-bridge 0.6.2, peft/canonical_lora.py (_init_target_match_state).
    """
    if adapter == "CanonicalLoRA":
        for part, linear in CANONICAL.items():
            if target.endswith(part):
                return target.replace(part, linear)
    return target
