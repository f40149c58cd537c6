"""Makes configurations of packed runs out of shipped recipes: a sound topology, then a few faults, from a seed."""

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.bridge.live import copy_of
from tests.support.named_faults import NAMED_FAULTS

#: Fields that are true or false.
_SWITCHES = (
    *("model.sequence_parallel", "model.calculate_per_token_loss", "ddp.average_in_collective"),
    *("dist.use_decentralized_pg", "dataset.enable_offline_packing", "dataset.enable_in_batch_packing"),
    *("dataset.offline_packing_specs.pad_cu_seqlens", "dataset.hf_rewrite", "dataset.do_validation"),
    *("dataset.do_test", "rerun_state_machine.check_for_nan_in_loss"),
)
#: Dotted path -> values that a fault may set it to; paths that a config does not have are passed over.
FAULTS: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(_SWITCHES, (True, False)),
    "model.tensor_model_parallel_size": (1, 2, 4),
    "model.pipeline_model_parallel_size": (1, 2, 4),
    "model.context_parallel_size": (1, 2, 3, 4, 8),
    "model.seq_length": (2048, 4096, 4098, 6144, 8192),
    "model.cp_comm_type": (None, "p2p", "a2a", "all_gather", "a2a+p2p", ["p2p", "a2a"], 3),
    "model.hierarchical_context_parallel_sizes": (None, [2, 2], [1, 2], [2]),
    "model.cuda_graph_impl": ("none", "transformer_engine", "local", "full_iteration"),
    "model.cuda_graph_modules": (["attn"], ["mlp"], []),
    "dist.eval_context_parallel_size": (None, 1, 2, 4),
    "dataset.seq_length": (2048, 4096, 6144, 8192, 0),
    "dataset.offline_packing_specs": (None,),
    "dataset.offline_packing_specs.packed_sequence_size": (-1, 0, 2048, 4096, 8192),
    "dataset.offline_packing_specs.pad_seq_to_mult": (1, 2, 4, 8, 16),
    "dataset.offline_packing_specs.max_single_sequence_length": (None, 1024, 4096),
    "dataset.dataset_kwargs": (None, {}, {"pad_to_max_length": True}, {"max_num_samples": 4}, {"prompt_template": "x"}),
    "dataset.dataloader_type": ("batch", "single", "cyclic"),
    "dataset.dataset_root": (None, "/data/chats"),
    "dataset.hf_validation_proportion": (None, 0.1, 1.5),
    "train.micro_batch_size": (1, 2, 4),
    "train.global_batch_size": (1, 2, 6, 8, 16, 32, 128),
    "train.num_epochs": (None, 2),
    "train.train_iters": (None, 10, 1000),
    "train.rampup_batch_size": (None, [2, 2, 100]),
    "validation.eval_micro_batch_size": (None, 1, 2),
    "validation.eval_global_batch_size": (None, 1, 3, 8, 16),
    "scheduler.lr_warmup_iters": (0, 10, 50),
    "scheduler.lr_decay_iters": (None, 10, 1000),
}
_TOPOLOGY_SWITCHES = (
    *("model.add_bias_linear", "model.account_for_embedding_in_pipeline_split"),
    *("model.account_for_loss_in_pipeline_split", "model.overlap_moe_expert_parallel_comm"),
    *("model.delay_wgrad_compute", "model.ep_overlap_early_attn_memory_release"),
    *("model.overlap_dispatch_backward_with_experts_wgrad", "model.moe_shared_expert_overlap"),
    *("model.moe_pad_expert_input_to_capacity", "model.tp_comm_overlap", "comm_overlap.tp_comm_overlap"),
    *("ddp.use_megatron_fsdp", "ddp.use_distributed_optimizer", "ddp.fsdp_manual_registration", "ddp.nccl_ub"),
    *("dist.use_megatron_fsdp", "dist.use_torch_fsdp2", "dist.use_tp_pp_dp_mapping"),
    *("dist.use_decentralized_pg", "dist.use_gloo_process_groups", "optimizer.use_distributed_optimizer"),
    "checkpoint.async_save",
)
_LAYOUTS = (None, "Et*8|t*8L", "Et*8|(t*8|)*2t*8L", "Et*24|t*24L", [["embedding"] + ["decoder"] * 16 + ["loss"]], "t|L")
#: The same on how layers, heads and experts are shared out; each configuration has faults of one kind.
TOPOLOGY_FAULTS: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(_TOPOLOGY_SWITCHES, (True, False)),
    "model.tensor_model_parallel_size": (1, 2, 4, 8),
    "model.pipeline_model_parallel_size": (1, 2, 3, 4),
    "model.virtual_pipeline_model_parallel_size": (None, 1, 2, 3, 4),
    "model.expert_model_parallel_size": (1, 2, 3, 4, 8),
    "model.expert_tensor_parallel_size": (None, 1, 2),
    "model.num_attention_heads": (12, 14, 16),
    "model.num_query_groups": (None, 2, 3, 8),
    "model.num_layers": (16, 18, 24, 48),
    "model.num_moe_experts": (0, 1, 6, 32),
    "model.num_layers_in_first_pipeline_stage": (None, 0, 4, 6, 7),
    "model.num_layers_in_last_pipeline_stage": (None, 0, 4, 6, 7),
    "model.pipeline_model_parallel_layout": _LAYOUTS,
    "model.moe_token_dispatcher_type": ("allgather", "alltoall", "flex"),
    "model.moe_flex_dispatcher_backend": (None, "deepep", "hybridep"),
    "model.moe_shared_expert_intermediate_size": (None, 512),
    "model.moe_expert_capacity_factor": (None, -1.0, 1.0),
    "model.moe_expert_rank_capacity_factor": (None, 1.0),
    "model.moe_router_load_balancing_type": ("aux_loss", "sinkhorn", "none"),
    "model.recompute_granularity": (None, "full", "selective"),
    "model.recompute_method": (None, "uniform"),
    "model.recompute_num_layers": (None, 1),
    "model.recompute_modules": (None, ["core_attn"], ["moe"]),
    "model.mtp_num_layers": (None, 1, 2),
    "comm_overlap.overlap_moe_expert_parallel_comm": (None, True, False),
    "comm_overlap.delay_wgrad_compute": (None, True, False),
    "comm_overlap.defer_embedding_wgrad_compute": (None, True),
    "comm_overlap.wgrad_deferral_limit": (None, -1, 50),
    "model.defer_embedding_wgrad_compute": (True, False),
    "ddp.data_parallel_sharding_strategy": ("no_shard", "optim_grads_params"),
    "checkpoint.save": (None, "/experiment/checkpoints"),
    "checkpoint.load": (None, "/experiment/checkpoints"),
    "checkpoint.ckpt_format": ("torch_dist", "fsdp_dtensor", "torch"),
    "train.check_weight_hash_across_dp_replicas_interval": (None, 10),
}
_TOPOLOGIES = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 2), (1, 2, 2), (4, 1, 1), (2, 2, 1), (1, 1, 4))
_SEQ_LENGTHS = (2048, 4096, 8192)
_MAX_FAULTS = 3


@dataclass(frozen=True, kw_only=True)
class GeneratedConfig:
    """A ConfigContainer made of the recipe `base`; `faults` are the values set after a sound topology, by path."""

    base: str
    config: Any
    world_size: int
    faults: Mapping[str, Any]


def generated(bases: Mapping[str, Any], seed: int) -> GeneratedConfig:
    choose = random.Random(seed)
    base = choose.choice(sorted(bases))
    config = copy_of(bases[base])
    faults: dict[str, Any] = {}
    world_size = _set_topology(config, choose)
    known = (FAULTS, TOPOLOGY_FAULTS, NAMED_FAULTS)[seed % 3]
    for path in choose.sample(sorted(known), choose.randint(0, _MAX_FAULTS)):
        _set(config, path, choose.choice(known[path]), faults)
    if choose.random() < 0.05:
        world_size = choose.choice((1, 2, 3, 8, 12))
    return GeneratedConfig(base=base, config=config, world_size=world_size, faults=faults)


def _set_topology(config: Any, choose: random.Random) -> int:
    from megatron.bridge.training.comm_overlap import CommOverlapConfig
    from megatron.bridge.training.config import ProfilingConfig

    tensor, pipeline, context = choose.choice(_TOPOLOGIES)
    size, data = choose.choice(_SEQ_LENGTHS), choose.choice((1, 2, 4))
    micro = 2 if getattr(config.dataset, "enable_in_batch_packing", False) else 1
    has_experts = bool(getattr(config.model, "num_moe_experts", None))
    for path, value in {
        "model.tensor_model_parallel_size": tensor,
        "model.pipeline_model_parallel_size": pipeline,
        "model.virtual_pipeline_model_parallel_size": choose.choice((None, 2)) if pipeline > 1 else None,
        "model.context_parallel_size": context,
        "model.sequence_parallel": tensor > 1,
        "model.expert_model_parallel_size": choose.choice((1, 2)) if has_experts else 1,
        "model.expert_tensor_parallel_size": 1 if has_experts else None,
        "model.calculate_per_token_loss": True,
        "ddp.average_in_collective": False,
        "model.seq_length": size,
        "dataset.seq_length": size,
        "dataset.offline_packing_specs.packed_sequence_size": size,
        "dataset.offline_packing_specs.pad_seq_to_mult": 2 * context * tensor,
        "train.micro_batch_size": micro,
        "train.global_batch_size": 8 * micro * data,
    }.items():
        _set(config, path, value, {})
    if choose.random() < 0.2:
        config.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    if choose.random() < 0.2:
        config.profiling = ProfilingConfig()
    return tensor * pipeline * context * data


def _set(config: Any, path: str, value: Any, record: dict[str, Any]) -> None:
    *sections, leaf = path.split(".")
    node = config
    for section in sections:
        node = getattr(node, section, None)
    if node is not None and hasattr(node, leaf):
        setattr(node, leaf, copy.deepcopy(value))
        record[path] = value
