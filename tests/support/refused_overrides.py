"""Overrides of a recipe that the host does not take, and what is said of each, with and without the host."""

from typing import Any

_DEEPER = "fields of objects (BP044). Set bridge_overrides.rng.seed as a whole."
#: Override -> what is said of it.
OVERRIDES: list[tuple[dict[str, Any], str]] = [
    ({"model": {"cp_com_type": "a2a"}}, "model.cp_com_type is no field of GPTModelProvider; allowed: one of its"),
    ({"model": {"cp_com_type": "a2a"}}, "one of its fields (BP044). Did you mean cp_comm_type?"),
    (
        {"modle": {"fp8": "e4m3"}},
        "modle is no field of ConfigContainer; allowed: one of its fields (BP044). Did you",
    ),
    ({"rng": {"seed": {"low": 1}}}, _DEEPER),
    ({"peft": {"dim": 8}}, "peft.dim is below peft, which is null; allowed: with method.kind lora or dora (BP044)."),
    ({"comm_overlap": {"overlap_grad_reduce": True}}, "with bridge_overrides.comm_overlap.tp_comm_overlap (BP044)."),
    ({"model": {"num_moe_experts": {"x": 1}}}, "num_moe_experts, which is null; allowed: with bridge_overrides.model."),
    ({"model": [1]}, "bridge_overrides.model is [1]; allowed: a section with named fields (BP850). Use one of these."),
    ({"ft": 1}, "ft is 1; allowed: a section with named fields, or null for none (BP850)."),
    ({"model": {"num_layers": "abc"}}, "bridge_overrides.model.num_layers is 'abc'; allowed: a whole number (BP850)."),
    ({"model": {"attention_backend": "flsh"}}, "is 'flsh'; allowed: flash, fused, unfused, local, auto (BP850)."),
    (
        {"model": {"params_dtype": "bfloat61"}},
        "'bfloat61'; allowed: the name of a torch dtype, e.g. bfloat16 (BP850)",
    ),
    ({"model": {"activation_func": "gelu"}}, "a function or class, which a recipe cannot hold (BP850). Set it on the"),
    ({"mixed_precision": "foo"}, "bridge_overrides.mixed_precision is 'foo'; allowed: bf16_mixed, bf16_with_fp8_"),
    ({"mixed_precision": "bf16_mixd"}, "(BP850). Did you mean bf16_mixed?"),
    ({"ddp": {"grad_reduce_in_fp32": False}}, "Set bridge_overrides.mixed_precision.grad_reduce_in_fp32 instead."),
    (
        {"model": {"first_last_layers_bf16": True}},
        "bridge_overrides.model.first_last_layers_bf16 is True; allowed: False, which mixed_precision writes over it "
        "when the run starts (BP851). Set bridge_overrides.mixed_precision.first_last_layers_bf16 instead.",
    ),
    (
        {"comm_overlap": {"tp_comm_overlap": False}, "model": {"overlap_p2p_comm": True}},
        "comm_overlap writes over it when the run starts (BP851). Set bridge_overrides.comm_overlap.overlap_p2p_comm",
    ),
    ({"scheduler": {"lr_decay_steps": 5}}, "(BP851). Set bridge_overrides.scheduler.lr_decay_iters instead."),
    ({"scheduler": {"wd_incr_steps": 5}}, "(BP851). Set schedule.train_iters instead."),
    (
        {"model": {"cuda_graph_scope": "attn"}},
        "Set cuda_graphs.implementation and cuda_graphs.modules instead.",
    ),
    ({"tokenizer": {"trust_remote_code": True}}, "allowed: False, to which TokenizerConfig sets it by itself (BP851)."),
    ({"ddp": {"num_buckets": 0}}, "allowed: num_buckets above 0, and only without bucket_size (BP851)."),
]
