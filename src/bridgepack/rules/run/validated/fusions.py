"""Rules on fused activations and rotary embeddings, and on the pattern of layers of hybrid models."""

import math
from collections.abc import Mapping

from bridgepack.host.modules import LATENT_SYMBOLS, LAYER_SYMBOLS
from bridgepack.host.validated import ENGINE_ACTIVATIONS, FUSED_ACTIVATIONS, HYBRID_PROVIDERS
from bridgepack.rules.judging.environment import CORE
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import Run

_FUSED, _ENGINE = "model.bias_activation_fusion", "model.use_te_activation_func"
_CLAMP = "model.activation_func_clamp_value"
_PATTERN, _LAYERS = "model.hybrid_layer_pattern", "model.num_layers"


def _activation(run: Run) -> str | None:
    """Return the name of the activation function, e.g. `silu`, or None if it is not known."""
    value = run.stated_value("model.activation_func")
    text = value.get("_target_") if isinstance(value, Mapping) else value
    return None if text is None else str(text).rpartition(".")[2]


@fixable_rule("BP887", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def fusion_of_another_activation(run: Run) -> Found:
    """A fused activation, clamp or rotary embedding does not support this model.

    Bad: bias_activation_fusion true, use_te_activation_func true. Good: use_te_activation_func false.
    Fix: Turn off the fusion that the finding names; {model.bias_activation_fusion} alone is the faster one where it
        works.
    Source: core/transformer/transformer_config.py:2112-2192,2966
    """
    kind = _activation(run)
    if run.is_on(_FUSED):
        if kind is not None:
            yield from _judge_fusion(run, kind)
        if run.is_on(_ENGINE):
            yield wrong(_ENGINE, "true with bias_activation_fusion true", "false", to=False)
    if run.is_on(_ENGINE) and kind not in (None, *ENGINE_ACTIVATIONS):
        yield wrong(_ENGINE, f"true with {kind}", "false", to=False)
    store_path = "model.activation_func_fp8_input_store"
    if run.is_on(store_path) and kind is not None and not (kind == "silu" and run.is_on("model.gated_linear_unit")):
        yield wrong(store_path, f"true with {kind}", "false", to=False)
    is_swiglu = kind == "silu" and run.is_on("model.gated_linear_unit")
    if is_swiglu and (reason := _clamp_error(run)):
        yield wrong(_CLAMP, f"{run.value(_CLAMP)} with {reason}", "null", to=None)
    is_latent, interleaved_path = run.is_on("model.multi_latent_attention"), "model.rotary_interleaved"
    if is_latent and run.is_on(interleaved_path):
        yield wrong(interleaved_path, "true with multi_latent_attention true", "false", to=False)
    if run.is_on("model.fused_residual_rmsnorm") and run.text_or_none("model.normalization") != "RMSNorm":
        actual = f"true with {run.text_or_none('model.normalization')}"
        yield wrong("model.fused_residual_rmsnorm", actual, "false", to=False)


def _clamp_error(run: Run) -> str:
    """Return why megatron-core refuses a clamp of SwiGLU, or nothing; before 0.20 it ignores the clamp."""
    value = run.stated_value(_CLAMP)
    if not isinstance(value, (int, float)) or not run.versions.are_in({CORE: ">=0.20"}):
        return ""
    if not math.isfinite(value) or value <= 0:
        return "SwiGLU, which needs a number above 0"
    if not run.is_mixture_of_experts:
        return "SwiGLU without experts"
    if run.stated_value("model.glu_linear_offset"):
        return "SwiGLU and glu_linear_offset"
    return "SwiGLU and use_te_activation_func true" if run.is_on(_ENGINE) else ""


def _judge_fusion(run: Run, kind: str) -> Found:
    is_gated, reason = run.is_on("model.gated_linear_unit"), ""
    if kind not in FUSED_ACTIVATIONS:
        reason = kind
    elif kind == "gelu" and not is_gated and not run.is_on("model.add_bias_linear"):
        reason = "gelu without a gate and without biases"
    elif kind == "quick_gelu" and not is_gated:
        reason = "quick_gelu without a gate"
    elif kind != "quick_gelu" and run.stated_value("model.glu_linear_offset"):
        reason = f"{kind} and glu_linear_offset"
    if reason:
        yield wrong(_FUSED, f"true with {reason}", "false", to=False)


@rule("BP888", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def layer_pattern_of_another_model(run: Run) -> Found:
    """The pattern of a hybrid model has unknown symbols, or another number of layers than the model.

    Bad: hybrid_layer_pattern M-M*-, num_layers 52. Good: a pattern of 52 layers.
    Fix: Write one symbol for each layer: M Mamba, G gated delta net, * attention, D sparse and + latent attention,
        - MLP, E experts; | separates pipeline stages, / begins the layers of multi-token prediction.
    Source: bridge/models/hybrid/hybrid_provider.py:170-250; core/models/hybrid/hybrid_layer_allocation.py:128,277
    """
    pattern = run.stated_value(_PATTERN)
    if not isinstance(pattern, str) or run.class_name("model") not in HYBRID_PROVIDERS:
        return
    layers = pattern.partition("/")[0].replace("|", "")
    symbols = (*LAYER_SYMBOLS, *LATENT_SYMBOLS)
    odd = sorted(set(layers) - set(symbols))
    num_layers = run.stated_integer(_LAYERS)
    if odd:
        yield wrong(_PATTERN, f"{odd[0]!r}", f"{' '.join(symbols)} | /")
    elif "*" in layers and set(LATENT_SYMBOLS) & set(layers):
        yield wrong(_PATTERN, "* with D or +", "one kind of attention")
    elif num_layers is not None and num_layers != len(layers):
        yield wrong(_PATTERN, f"{len(layers)} layers, and num_layers is {num_layers}", f"{num_layers} layers")
