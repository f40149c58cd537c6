"""The other value of each field of a model's config, with which `tests.support.model_fields` builds a model.

Most follow from the field's type: the other truth, twice a number. Those that need another value, or act only beside
further settings, stand here by name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.host import HostRelease
from tests.support.model_fields import KINDS, FieldRequest

CLASSES = {
    "dense": "megatron.bridge.models.gpt_provider.GPTModelProvider",
    "experts": "megatron.bridge.models.gpt_provider.GPTModelProvider",
    "latent": "megatron.bridge.models.mla_provider.MLAModelProvider",
    "hybrid": "megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider",
}
_ALL = tuple(KINDS)
_ROUTED = ("experts", "latent", "hybrid")
_CAPACITY = {"moe_expert_capacity_factor": 0.5}
_GROUPS = {"moe_router_num_groups": 2, "moe_router_group_topk": 1}
_SIGMOID = {"moe_router_score_function": "sigmoid"}
_NO_SHARED = {"moe_shared_expert_intermediate_size": None}
_YARN = {
    **{
        "position_embedding_type": "yarn",
        "yarn_rotary_scaling_factor": 8.0,
        "yarn_original_max_position_embeddings": 8,
    },
    **{"yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0, "yarn_mscale": 1.0, "yarn_mscale_all_dim": 0.5},
    **{"yarn_correction_range_round_to_int": True},
}
_LATENT_YARN = {
    **{"rope_type": "yarn", "original_max_position_embeddings": 8, "rotary_scaling_factor": 8.0, "mscale": 1.0},
    **{"mscale_all_dim": 0.5},
}
_HAS_WINDOW = {"window_size": [4, 0]}
_MUP = {"use_mup": True, "mup_base_hidden_size": 16}
#: Field -> its other value, the kinds of models, and settings beside it or with it.
_BY_HAND: tuple[tuple[str, Any, tuple[str, ...], Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("activation_func", "gelu", _ALL, {}, {}),
    ("add_bias_linear", True, ("dense",), {}, {}),
    ("add_bias_linear", True, _ROUTED, _NO_SHARED, {}),
    ("embedding_init_method_std", 0.5, _ALL, {}, {}),
    ("hybrid_layer_pattern", "M-*E-", ("hybrid",), {}, {}),
    ("layernorm_epsilon", 1e-3, _ALL, {}, {}),
    ("mamba_head_dim", 4, ("hybrid",), {}, {}),
    ("mamba_num_groups", 1, ("hybrid",), {}, {}),
    ("mamba_num_heads", 2, ("hybrid",), {}, {}),
    ("mamba_state_dim", 8, ("hybrid",), {}, {}),
    ("mamba_chunk_size", 8, ("hybrid",), {}, {}),
    ("moe_apply_probs_on_input", True, _ROUTED, {"moe_router_topk": 1, "moe_router_pre_softmax": True}, {}),
    ("moe_expert_capacity_factor", 0.5, _ROUTED, {}, {}),
    ("moe_ffn_hidden_size", 48, _ROUTED, {}, {}),
    ("moe_layer_freq", [1, 1, 1], ("experts", "latent"), {}, {}),
    ("moe_pad_expert_input_to_capacity", True, _ROUTED, _CAPACITY, {}),
    ("moe_router_enable_expert_bias", True, _ROUTED, _SIGMOID, {}),
    ("moe_router_group_topk", 2, _ROUTED, _GROUPS, {}),
    ("moe_router_load_balancing_type", "aux_loss", _ROUTED, {}, {}),
    ("moe_router_load_balancing_type", "seq_aux_loss", _ROUTED, {}, {}),
    ("moe_router_load_balancing_type", "global_aux_loss", _ROUTED, {}, {}),
    ("moe_router_load_balancing_type", "sinkhorn", _ROUTED, {}, {}),
    ("moe_router_num_groups", 4, _ROUTED, _GROUPS, {"moe_router_group_topk": 2}),
    ("moe_router_score_function", "sigmoid", _ROUTED, {}, {}),
    ("moe_router_topk", 3, _ROUTED, {}, {}),
    ("moe_shared_expert_intermediate_size", 48, _ROUTED, {}, {}),
    ("moe_token_drop_policy", "position", _ROUTED, _CAPACITY, {}),
    ("mscale", 0.5, ("latent",), _LATENT_YARN, {}),
    ("mscale_all_dim", 1.0, ("latent",), _LATENT_YARN, {}),
    ("beta_fast", 4.0, ("latent",), _LATENT_YARN, {}),
    ("beta_slow", 0.1, ("latent",), _LATENT_YARN, {}),
    ("original_max_position_embeddings", 16, ("latent",), _LATENT_YARN, {}),
    ("rotary_scaling_factor", 4.0, ("latent",), _LATENT_YARN, {}),
    ("rope_type", "yarn", ("latent",), {"original_max_position_embeddings": 8, "rotary_scaling_factor": 8.0}, {}),
    *((name, 2.0, _ALL[:3], _MUP, {}) for name in ("mup_embedding_mult", "mup_output_mult", "mup_attn_scale_power")),
    ("mup_base_hidden_size", 64, _ALL[:3], _MUP, {}),
    ("mup_base_head_dim", 2.0, _ALL[:3], _MUP, {}),
    ("no_rope_freq", 3, ("dense", "experts"), {}, {}),
    ("normalization", "LayerNorm", _ALL, {}, {}),
    ("num_layers", 4, ("dense",), {}, {}),
    ("num_layers", 4, ("experts", "latent"), {}, {"moe_layer_freq": [0, 1, 1, 1]}),
    ("num_query_groups", 1, ("dense", "experts", "hybrid"), {}, {}),
    ("position_embedding_type", "learned_absolute", _ALL, {}, {}),
    ("position_embedding_type", "none", ("hybrid",), {}, {}),
    ("position_embedding_type", "yarn", ("dense", "experts"), {}, _YARN),
    ("qk_l2_norm", True, ("dense", "experts"), {"qk_layernorm": False}, {}),
    ("rope_scaling", True, ("dense", "experts"), {"rotary_base": 500000}, {"rope_scaling_factor": 8.0}),
    ("rope_scaling_factor", 8.0, ("dense", "experts"), {"rotary_base": 500000, "rope_scaling": True}, {}),
    ("rotary_percent", 0.5, _ALL, {}, {}),
    ("rotary_base", 500000, _ALL, {}, {}),
    ("softmax_type", "learnable", ("dense", "experts", "hybrid"), {}, {}),
    ("softmax_type", "off-by-one", ("dense", "experts", "hybrid"), {}, {}),
    ("window_size", [4, 0], ("dense", "experts", "hybrid"), {}, {}),
    ("window_attn_skip_freq", 2, ("dense", "experts", "hybrid"), _HAS_WINDOW, {}),
    ("yarn_beta_fast", 4.0, ("dense",), _YARN, {}),
    ("yarn_beta_slow", 0.1, ("dense",), _YARN, {}),
    ("yarn_correction_range_round_to_int", False, ("dense",), _YARN, {}),
    ("yarn_mscale", 0.5, ("dense",), _YARN, {}),
    ("yarn_mscale_all_dim", 1.0, ("dense",), _YARN, {}),
    ("yarn_original_max_position_embeddings", 16, ("dense",), _YARN, {}),
    ("yarn_rotary_scaling_factor", 4.0, ("dense",), _YARN, {}),
)
_PLACED = "where training runs, not what the model computes"
_NO_TRAINING = "inference alone"
#: Beginning of a field's name, or the name -> why it is not altered.
NOT_ALTERED: Mapping[str, str] = {
    **dict.fromkeys(("tp_comm_", "cuda_graph", "pipeline_", "virtual_pipeline", "cpu_offloading", "gtp_"), _PLACED),
    **dict.fromkeys(("tensor_model_", "context_parallel", "expert_model_", "expert_tensor_", "expert_gtp_"), _PLACED),
    **dict.fromkeys(("num_layers_in_", "account_for_", "recompute_", "moe_paged_stash", "moe_hybridep_"), _PLACED),
    **dict.fromkeys(("moe_ncclep_", "moe_deepep_", "moe_flex_", "overlap_", "timers", "grad_", "no_sync"), _PLACED),
    **dict.fromkeys(("param_sync", "finalize_model", "hierarchical_", "cp_comm_type", "offload_modules"), _PLACED),
    **dict.fromkeys(("fine_grained_", "external_cuda", "enable_cuda", "tensor_parallel_num", "delay_"), _PLACED),
    **dict.fromkeys(("inference_", "cache_mla", "flash_decode", "use_inference"), _NO_TRAINING),
    **dict.fromkeys(("hf_model_", "config_logger", "restore_modelopt"), "a name or a place"),
    **dict.fromkeys(("transformer_layer_spec", "hybrid_stack_spec"), "the layers themselves, which a file cannot hold"),
    **dict.fromkeys(("init_method", "output_layer_init", "embedding_init_method", "moe_grad_scale"), "a function"),
    **dict.fromkeys(("mtp_grad_scale", "experimental_attention_variant_loss"), "a function"),
    "hybrid_override_pattern": "an old name of hybrid_layer_pattern",
    "mtp_hybrid_override_pattern": "layers that predict further tokens, which are left out of packs",
    "attention_backend": "kernels that need a GPU",
    "params_dtype": "the table is made in single precision",
    **dict.fromkeys(("autocast_dtype", "logit_dtype", "mamba_training_ssm"), "the table is made in single precision"),
    **dict.fromkeys(("fp8", "fp4", "quant_recipe", "bf16", "fp16"), "number formats, which need a GPU"),
    "mrope_section": "positions of images, which text does not have",
    "multi_latent_attention": "another class of models",
    "hetereogenous_dist_checkpoint": "the form of checkpoints",
}


def requests_of(release: HostRelease) -> Iterator[FieldRequest]:
    """Yield each field of each kind of model with another value."""
    by_hand = {(name, kind) for name, _, kinds, _, _ in _BY_HAND for kind in kinds}
    for name, value, kinds, beside, with_it in _BY_HAND:
        for kind in kinds:
            yield FieldRequest(kind=kind, name=name, value=value, beside=beside, with_it=with_it)
    for kind, model_class in CLASSES.items():
        for name, allowed in release.facts.types_of(model_class).items():
            if (name, kind) not in by_hand and why_not_altered(name) is None:
                yield FieldRequest(kind=kind, name=name, allowed=allowed)


def why_not_altered(name: str) -> str | None:
    """Return why no model is built with another value of a field, or None."""
    return next((reason for start, reason in NOT_ALTERED.items() if name.startswith(start)), None)


_DELTA = "core/ssm/gated_delta_net/common.py:166-180"
_INDEXER = "core/transformer/experimental_attention_variant/dsa.py:1123-1354"
#: Field that only a GPU or TransformerEngine can show -> its effect as the source has it, and the place.
READ: Mapping[str, tuple[str, str]] = {
    "layernorm_zero_centered_gamma": ("function", "core/extensions/transformer_engine.py:848"),
    "moe_latent_size": ("shape", "core/transformer/moe/moe_layer.py:265-290"),
    "experimental_attention_variant": ("shape", "core/models/gpt/experimental_attention_variant_module_specs.py"),
    "linear_attention_freq": ("shape", "core/models/gpt/experimental_attention_variant_module_specs.py:402-421"),
    **{f"linear_{name}": ("shape", _DELTA) for name in ("conv_kernel_dim", "key_head_dim", "value_head_dim")},
    **{f"linear_num_{name}_heads": ("shape", _DELTA) for name in ("key", "value")},
    **{f"dsa_indexer_{name}": ("shape", _INDEXER) for name in ("n_heads", "head_dim")},
    **{f"dsa_indexer_{name}": ("function", _INDEXER) for name in ("topk", "k_norm_epsilon", "rope_interleaved")},
    **{f"dsa_indexer_{name}": ("function", _INDEXER) for name in ("rotate_activation", "scoring_relu")},
    "dsa_indexer_topk_freq": ("function", "core/transformer/experimental_attention_variant/dsa.py:1562"),
    "dsa_indexer_skip_topk_offset": ("function", "core/transformer/experimental_attention_variant/dsa.py:1563"),
    "multi_latent_attention": ("shape", "core/transformer/multi_latent_attention.py, core/transformer/attention.py"),
}
