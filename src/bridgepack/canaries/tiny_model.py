"""A tiny model of a recipe's family: the host's own provider or config for the recipe's model, with small sizes.

What makes the family stays: norms, query-key norms, biases, gates, shared groups, rotary embeddings, tied embeddings,
experts and how they are chosen. What depends on how tokens are grouped into batches goes, because there packed and
unpacked training differ by design: auxiliary losses of experts, and their capacity.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.canaries.records import ADAPTER_SIZE, HostFacts, topology_of
from bridgepack.errors import ConfigError
from bridgepack.replay.settings import Topology

#: Rank of adapters: a multiple of every tensor-parallel size.
_ADAPTER_DIM = 8
#: Modules that are recomputed and have matrices with adapters in them.
_HOLD_ADAPTERS = frozenset({"mlp", "moe", "shared_experts"})
#: Layers: the fewest that two and three pipeline stages share evenly.
NUM_LAYERS = 6
NUM_HEADS = 8
#: Groups where the recipe's model has fewer groups than heads.
NUM_GROUPS = 4

SIZES: Mapping[str, Any] = {
    "num_layers": NUM_LAYERS,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": NUM_HEADS,
    "kv_channels": 16,
}
_EXPERT_SIZES: Mapping[str, Any] = {
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 64,
}
#: Not of a tiny model, or changing what a batch's grouping has no part in; the host's defaults.
_PLAIN: Mapping[str, Any] = {
    "num_layers_in_first_pipeline_stage": None,
    "num_layers_in_last_pipeline_stage": None,
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
    "pipeline_model_parallel_layout": None,
    "virtual_pipeline_model_parallel_size": None,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": None,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "recompute_granularity": None,
    "recompute_method": None,
    "recompute_num_layers": None,
    "recompute_modules": None,
    "overlap_moe_expert_parallel_comm": False,
    "delay_wgrad_compute": False,
    "tp_comm_overlap": False,
    "fine_grained_activation_offloading": False,
    "cpu_offloading": False,
    "fp8": None,
    "fp4": None,
    "bf16": False,
    "fp16": False,
    "autocast_dtype": None,
    "gradient_accumulation_fusion": False,
    "should_pad_vocab": False,
}
#: Fields whose plain value is the host's default: their kinds differ between versions.
_DEFAULTED = frozenset(
    {"cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope", "hierarchical_context_parallel_sizes"}
)
_PLAIN_EXPERTS: Mapping[str, Any] = {
    "moe_aux_loss_coeff": 0.0,
    "moe_z_loss_coeff": None,
    "moe_router_load_balancing_type": "none",
    "moe_expert_capacity_factor": None,
    "moe_pad_expert_input_to_capacity": False,
    "moe_router_num_groups": None,
    "moe_router_group_topk": None,
    "moe_router_enable_expert_bias": False,
    "moe_router_force_load_balancing": False,
    "moe_token_dispatcher_type": "alltoall",
    "moe_flex_dispatcher_backend": None,
    "moe_enable_deepep": False,
    "moe_shared_expert_overlap": False,
    "moe_router_dtype": None,
    "moe_grouped_gemm": False,
}
#: What a machine without TransformerEngine cannot do. C/ is megatron-core 0.19.2.
WITHOUT_KERNELS: Mapping[str, Any] = {
    "transformer_impl": "local",
    # C/transformer/transformer_config.py:2186 and 2667: kernels of TransformerEngine.
    "apply_rope_fusion": False,
    "moe_permute_fusion": False,
    "moe_router_fusion": False,
    # C/transformer/torch_norm.py:48
    "persist_layer_norm": False,
    # C/fusions/fused_softmax.py:357: a kernel of Apex, for rows that are not packed.
    "masked_softmax_fusion": False,
    "use_transformer_engine_op_fuser": False,
    "use_te_rng_tracker": False,
    "use_cpu_initialization": True,
    "deterministic_mode": False,
    # C/tensor_parallel/cross_entropy.py is the same arithmetic without a kernel.
    "cross_entropy_loss_fusion": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
}


def require_covered(model: Any) -> None:
    """Accept a model whose attention the canary can compute.

    Raises:
        ConfigError: it is of a kind that is not covered.
    """
    kind = type(model).__name__
    reasons = [
        (not _is_plain_decoder(model), "its layers"),
        (bool(getattr(model, "multi_latent_attention", False)), "multi-latent attention"),
        (getattr(model, "experimental_attention_variant", None) is not None, "its attention variant"),
        (bool(getattr(model, "is_hybrid_model", False)), "hybrid layers"),
        (getattr(model, "window_size", None) is not None, "sliding windows"),
        (getattr(model, "softmax_type", "vanilla") != "vanilla", "attention sinks"),
        (
            getattr(model, "position_embedding_type", "rope") not in ("rope", "yarn", "learned_absolute"),
            "its positions",
        ),
    ]
    faults = [reason for is_there, reason in reasons if is_there]
    if faults:
        raise ConfigError(
            f"model.name gives a {kind}, which the canary does not cover: {', '.join(faults)}. Allowed: decoders with "
            "causal attention over whole sequences, as Llama, Qwen2, Qwen3 and Qwen3 MoE. Use `bridgepack check` and "
            "`bridgepack prove sources` for this model, or run the canary with --set model.name=MODEL of a covered "
            "family.",
            field="model.name",
        )


def _is_plain_decoder(model: Any) -> bool:
    """Return whether the host builds a model by its code for plain decoders, from a provider or from parts."""
    parts, provider = import_host("models.gpt.gpt_builder"), import_host("models.gpt_provider").GPTModelProvider
    if isinstance(model, parts.GPTModelConfig):
        return bool(model.get_builder_cls().build_model is parts.GPTModelBuilder.build_model)
    return isinstance(model, provider) and type(model).provide is provider.provide


def transformer_of(model: Any) -> Any:
    """Return what holds the settings of a model's layers: the transformer of a model of parts, else the model.

    Source: megatron/bridge/training/setup.py of 0.6.2 and 0.7 (setup), before _update_model_config_funcs.
    """
    return getattr(model, "transformer", model)


def cut_down_adapters(config: Any) -> dict[str, Any]:
    """Make the adapters of a recipe small, without dropout, and return their sizes; empty without adapters."""
    if config.peft is None:
        return {}
    assign_known(config.peft, {"dim": _ADAPTER_DIM, "dropout": 0.0})
    return {ADAPTER_SIZE: _ADAPTER_DIM}


def _recomputed_around_adapters(model: Any) -> dict[str, Any]:
    """Return the recipe's recomputation of modules that adapters are in: autograd may skip these in silence."""
    modules = [name for name in getattr(model, "recompute_modules", None) or () if name in _HOLD_ADAPTERS]
    granularity = model.recompute_granularity
    if granularity == "selective" and modules:
        return {"recompute_granularity": granularity, "recompute_modules": modules}
    if granularity == "full":
        return {
            "recompute_granularity": granularity,
            "recompute_method": model.recompute_method,
            "recompute_num_layers": 1,
        }
    return {}


def cut_down(model: Any, *, has_adapters: bool = False) -> dict[str, Any]:
    """Make a model tiny, and return the sizes that it has now."""
    groups = getattr(model, "num_query_groups", None)
    has_own_keys = groups is None or groups >= model.num_attention_heads
    sizes = {**SIZES, "num_query_groups": NUM_HEADS if has_own_keys else NUM_GROUPS}
    plain = {**_PLAIN, **(_recomputed_around_adapters(model) if has_adapters else {})}
    if getattr(model, "num_moe_experts", None):
        sizes |= _EXPERT_SIZES
        plain |= _PLAIN_EXPERTS
        if has_adapters:
            plain["expert_tensor_parallel_size"] = 1
        if isinstance(model.moe_layer_freq, list):
            # A recipe's first layers without experts: one of them.
            plain["moe_layer_freq"] = [int(0 not in model.moe_layer_freq), *[1] * (NUM_LAYERS - 1)]
        if getattr(model, "moe_shared_expert_intermediate_size", None):
            sizes["moe_shared_expert_intermediate_size"] = 64
    if getattr(model, "mtp_num_layers", None):
        plain["mtp_num_layers"] = None
    if getattr(model, "cp_comm_type", None) == "a2a+p2p":
        # Its levels are sizes of the recipe's own context parallelism.
        plain["cp_comm_type"] = "p2p"
    assign_known(model, {**_defaults(model), **plain, **sizes})
    return sizes


def assign_known(target: Any, values: Mapping[str, Any]) -> None:
    """Set the fields that an object of the installed version has."""
    for name, value in values.items():
        if hasattr(target, name):
            setattr(target, name, value)


def left_out(config: Any) -> Iterator[str]:
    """Yield what of a recipe the tiny model leaves out."""
    model = config.model
    if config.peft is not None:
        yield (
            f"adapters have rank {_ADAPTER_DIM}, no dropout, and two random matrices, so that each of them has a "
            "gradient"
        )
    if getattr(model, "num_moe_experts", None) and config.peft is not None:
        yield "tensor-parallel ranks have whole experts, with their adapters"
    if getattr(model, "num_moe_experts", None):
        yield "auxiliary losses and capacity of experts are off: they depend on how tokens are grouped into batches"
    if getattr(model, "mtp_num_layers", None):
        yield "the layers that predict several tokens are left out"
    if (getattr(model, "expert_model_parallel_size", None) or 1) > 1:
        yield "experts are not spread over ranks"


def _defaults(model: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for field in (*fields(model), *fields(transformer_of(model))):
        if field.name in _DEFAULTED and field.default is not MISSING:
            defaults[field.name] = field.default
        elif field.name in _DEFAULTED and callable(field.default_factory):
            defaults[field.name] = field.default_factory()
    return defaults


#: Maximum processes of a topology.
MAX_PROCESSES = 16
_DEFAULT = (
    topology_of(),
    topology_of(data=2),
    topology_of(tensor=2),
    topology_of(pipeline=2),
    topology_of(pipeline=3),
    topology_of(context=2),
    topology_of(context=4),
    topology_of(context=2, tensor=2, pipeline=2, sequence_parallel=True),
)


def default_topologies(
    facts: HostFacts, *, num_packs: int, num_devices: int | None
) -> tuple[list[Topology], list[str]]:
    """Return the default topologies to compare, and notes on skipped topologies.

    `num_devices` is the number of GPUs available for a topology; None on CPU.
    """
    topologies, notes = [], []
    for topology in _DEFAULT:
        if num_devices is not None and topology.world_size > num_devices:
            notes.append(f"{topology.title} is left out: it needs {topology.world_size} GPUs; --device cpu compares it")
        elif num_packs % topology.data_parallel_size:
            notes.append(f"{topology.title} is left out: {num_packs} packs cannot be shared evenly")
        else:
            topologies.append(fit_topology(topology, facts))
    return topologies, notes


def fit_topology(topology: Topology, facts: HostFacts) -> Topology:
    """Return a topology with sequence parallelism if the recipe or its experts need it.

    Source: megatron-core 0.19.2, transformer/moe/moe_layer.py:630 refuses tensor parallelism without it.
    """
    is_split = topology.tensor_model_parallel_size > 1 and (
        topology.sequence_parallel or facts.is_moe or facts.sequence_parallel
    )
    return replace(topology, sequence_parallel=is_split)


def topology_of_options(tensor: int | None, pipeline: int | None, context: int | None) -> Topology | None:
    """Return the topology of the options, or None if no option is given.

    Raises:
        ConfigError: the topology is impossible for the tiny model.
    """
    if tensor is None and pipeline is None and context is None:
        return None
    topology = topology_of(tensor=tensor or 1, pipeline=pipeline or 1, context=context or 1)
    _require_shares("--pipeline", topology.pipeline_model_parallel_size, NUM_LAYERS, f"{NUM_LAYERS} layers")
    _require_shares(
        "--tensor",
        topology.tensor_model_parallel_size,
        NUM_HEADS,
        f"{NUM_HEADS} heads",
        ", or less where heads share keys",
    )
    if topology.world_size > MAX_PROCESSES:
        raise ConfigError(
            f"--tensor, --pipeline and --context ask for {topology.world_size} processes; allowed: at most "
            f"{MAX_PROCESSES}. Choose smaller sizes."
        )
    return topology


def require_fit(topology: Topology, facts: HostFacts, num_devices: int | None) -> None:
    """Check that tensor-parallel ranks share the attention heads evenly, and that a topology fits on the GPUs.

    Raises:
        ConfigError: they do not, or it does not.
    """
    heads, groups = facts.model["num_attention_heads"], facts.model["num_query_groups"]
    _require_shares("--tensor", topology.tensor_model_parallel_size, groups, f"{heads} heads in {groups} groups")
    if num_devices is not None and topology.world_size > num_devices:
        raise ConfigError(
            f"{topology.title} needs {topology.world_size} GPUs, and {num_devices} are here. Use --device cpu."
        )


def _require_shares(option: str, size: int, total: int, parts: str, more: str = "") -> None:
    if total % size:
        divisors = ", ".join(str(size) for size in range(1, total + 1) if total % size == 0)
        raise ConfigError(
            f"{option} is {size}; the canary's tiny model has {parts}; allowed: {divisors}{more}. Choose one of these."
        )
