"""Values that the validation of Megatron-Bridge 0.6.2 and Megatron-Core 0.19.2 allows: data, nothing is imported."""

from collections.abc import Mapping

#: Modules whose activations may be offloaded. Source: megatron/core/transformer/transformer_config.py:1860.
OFFLOADED_MODULES = (
    *("core_attn", "attn_proj", "expert_fc1", "fused_group_mlp", "moe_act", "attn_norm", "mlp_norm", "qkv_linear"),
)
#: Those of them that lie in a layer of experts.
OFFLOADED_IN_EXPERTS = frozenset({"moe_act", "expert_fc1", "fused_group_mlp"})
#: Router scores that a bias for each expert works with. Source: megatron/core/transformer/transformer_config.py:2287.
BIASED_SCORES = ("sigmoid", "sqrtsoftplus")
#: Dispatchers that cannot pad the tokens of an expert. Source: megatron/core/transformer/transformer_config.py:2326.
UNPADDED_DISPATCHERS = ("allgather", "alltoall_seq")
#: Package -> fields of `logger` that need it. Source: megatron/bridge/training/config.py:684-733.
LOGGER_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "mlflow": ("mlflow_experiment", "mlflow_run_name", "mlflow_tracking_uri", "mlflow_tags", "mlflow_description"),
    "comet-ml": ("comet_project", "comet_experiment_name", "comet_workspace", "comet_api_key", "comet_tags"),
}
#: Activations that fusions allow. Source: megatron/core/transformer/transformer_config.py:2112-2160.
FUSED_ACTIVATIONS = ("gelu", "silu", "quick_gelu")
ENGINE_ACTIVATIONS = ("gelu", "silu", "relu")
#: Classes of models that take their layers from `model.hybrid_layer_pattern`.
#: Source: megatron/bridge/models/hybrid/hybrid_provider.py:170, and the classes that inherit from it.
HYBRID_PROVIDERS = frozenset(
    {
        *("HybridModelProvider", "MambaModelProvider", "NemotronVLModelProvider", "NemotronOmniModelProvider"),
        "NemotronOmniLlavaModelProvider",
    }
)
#: Module that may be recomputed alone -> what the model needs for it; empty if nothing.
#: Source: megatron/core/transformer/transformer_config.py:1765-1822.
RECOMPUTED_MODULES: Mapping[str, str] = {
    **dict.fromkeys(("core_attn", "layernorm", "mlp", "moe"), ""),
    "moe_act": "moe_grouped_gemm true",
    "mla_up_proj": "multi_latent_attention true",
    "gdn_norm_out": "experimental_attention_variant gated_delta_net",
    "shared_experts": "moe_shared_expert_overlap false",
}
#: Classes of models whose experts have inputs of their own, which some options pass by.
#: Source: megatron/bridge/models/gemma/gemma4_provider.py:49,332.
EXPERTS_WITH_OWN_INPUTS = frozenset({"Gemma4ModelProvider", "Gemma4VLModelProvider"})
