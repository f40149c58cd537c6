"""Recipes drawn by chance, most of them sound: overrides, modes of packing, precisions, sources and sizes."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.host import TARGET

TEXT = (
    *("llama32_1b_sft_1gpu_h100_bf16_config", "qwen3_8b_sft_4gpu_h100_bf16_config"),
    *("qwen3_8b_peft_1gpu_h100_bf16_config", "Qwen/Qwen3-8B", "nemotronh_4b_sft_1gpu_h100_bf16_config"),
    *("qwen3_30b_a3b_sft_8gpu_h100_bf16_config", "gpt_oss_20b_sft_8gpu_h100_bf16_config"),
    *("moonlight_16b_peft_2gpu_h100_bf16_config", "qwen25_vl_3b_sft_1gpu_h100_bf16_config"),
)
NO_TEXT = (
    *("flux_12b_sft_2gpu_h100_bf16_config", "wan_1_3b_sft_8gpu_h100_bf16_config", "llama32_1b_sft_1gpu_h100_bf61"),
    *("qwen3_next_80b_a3b_peft_1gpu_h100_bf16_config", "mine.recipes.mine_config"),
)
#: Sections whose fields are overridden, and their classes in the recipes above; the last are null in most.
SECTIONS: Mapping[str, str] = {
    "model": "megatron.bridge.models.gpt_provider.GPTModelProvider",
    "optimizer": "megatron.bridge.training.config.OptimizerConfig",
    "ddp": "megatron.core.distributed.distributed_data_parallel_config.DistributedDataParallelConfig",
    "train": "megatron.bridge.training.config.TrainingConfig",
    "scheduler": "megatron.bridge.training.config.SchedulerConfig",
    "checkpoint": "megatron.bridge.training.config.CheckpointConfig",
    "logger": "megatron.bridge.training.config.LoggerConfig",
    "tokenizer": "megatron.bridge.training.tokenizers.config.TokenizerConfig",
    "mixed_precision": "megatron.bridge.training.mixed_precision.MixedPrecisionConfig",
    "dataset": "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig",
    "comm_overlap": "megatron.bridge.training.comm_overlap.CommOverlapConfig",
    "profiling": "megatron.bridge.training.config.ProfilingConfig",
    "ft": "megatron.bridge.training.config.FaultToleranceConfig",
    "peft": "megatron.bridge.peft.lora.LoRA",
    "dist": "megatron.bridge.training.config.DistributedInitConfig",
}
VALUES = (0, 1, 2, 0.5, True, False, None, "abc", "torch.bfloat16", "flash", "attn", [], ["attn"], [1, 2], {}, "")
PRECISIONS = ("bf16_mixed", "fp16_mixed", "bf16_with_fp8_current_scaling_mixed", "bf16_with_mxfp8_mixed")
#: Overrides that have been met, besides those that are drawn.
MET: tuple[Mapping[str, Any], ...] = (
    *({"mixed_precision": name} for name in (*TARGET.facts.precision_names[:4], "foo", "bf16-mixed")),
    {"model": {"first_last_layers_bf16": True}},
    {"model": {"sequence_parallel": True}},
    {"scheduler": {"lr_decay_steps": 5}},
    {"model": {"cuda_graph_scope": "attn"}},
    {"model": {"pipeline_dtype": "bfloat16"}},
    {"ddp": {"grad_reduce_in_fp32": True}},
    {"tokenizer": {"hf_tokenizer_kwargs": {"use_fast": False}, "tokenizer_hf_no_use_fast": True}},
    {"elsewhere": 1},
    {"trian": {"train_iters": 5}},
    {"train": 5},
    {"rng": {"seed": {"low": 1}}},
    {"dataset": {"offline_packing_specs": {"pad_cu_seqlens": True, "packed_sequence_sise": 4}}},
)
SOURCES: tuple[Any, ...] = (
    *(*["train.jsonl"] * 9, "train.parquet", "folder", ["a.jsonl", "b.jsonl"]),
    *(
        {"dataset": "org/chats"},
        {"path": "a.jsonl", "layout": {"kind": "chat", "messages": [{"from_column": "turns"}]}},
        {"path": "a.jsonl", "epochs": 2},
    ),
)
#: Kind -> layouts of the rows; the host reads all but the last.
LAYOUTS: dict[str, tuple[Any, ...]] = {
    "chat": (
        *({"kind": "chat", "messages": [{"from_column": name}]} for name in ("messages", "conversations")),
        {"kind": "chat", "messages": [{"from_column": "talk"}]},
    ),
    "prompt_completion": (
        {"kind": "prompt_completion", "prompt": "{question}", "completion": "{answer}"},
        {"kind": "prompt_completion", "prompt": "Q: {question}\nA:", "completion": "{answer}"},
        {"kind": "prompt_completion", "prompt": ["{question}", "{context}"], "completion": "{answer}"},
    ),
}
PREPROCESSING: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {}, {}, {}, {"kind": "tokenized"}, {"kind": "prompt_completion"}),
    *({"null_content": "auto"}, {"loss_mode": "last_turn"}, {"loss_mode": "full"}),
)


def recipes(seed: int, number: int) -> Iterator[dict[str, Any]]:
    """Yield values of recipes."""
    chance = random.Random(seed)
    for index in range(number):
        yield _recipe(chance, f"drawn-{index}")


def _recipe(chance: random.Random, name: str) -> dict[str, Any]:
    model = chance.choice(TEXT if chance.random() < 0.95 else NO_TEXT)
    mode = chance.choice(["offline"] * 8 + ["in_batch", "none"])
    tensor, pipeline, context, data = (
        chance.choice(sizes) for sizes in ([1, 1, 2, 4], [1, 1, 1, 2, 3], [1, 1, 2], [1, 2])
    )
    splits = {"validation": chance.choice(SOURCES)} if chance.random() < 0.2 else {}
    splits |= {"validation_fraction": 0.1} if not splits and chance.random() < 0.1 else {}
    preprocessing = {"kind": "chat"} | chance.choice(PREPROCESSING)
    kept = LAYOUTS.get(preprocessing["kind"], ()) if chance.random() < 0.8 else ()
    layout = {"layout": chance.choice(kept)} if kept else {}
    return {
        "name": name,
        "data": {"train": chance.choice(SOURCES), **splits, **layout},
        "tokenizer": {"name_or_path": "Qwen/Qwen3-8B", "trust_remote_code": chance.random() < 0.1},
        "preprocessing": preprocessing,
        "packing": {"mode": mode, "packed_sequence_size": chance.choice([2048, 4096])},
        "parallelism": {
            "tensor_model_parallel_size": tensor,
            "pipeline_model_parallel_size": pipeline,
            "context_parallel_size": context,
            "expert_model_parallel_size": chance.choice([1] * 9 + [2]),
            "sequence_parallel": tensor > 1 and chance.random() < 0.5,
            "num_gpus": tensor * pipeline * context * data * 2,
        },
        "batch": {"micro_batch_size": 2 if mode == "in_batch" else 1, "global_batch_size": 16},
        "model": {"name": model},
        "method": {"kind": chance.choice(["full", "full", "lora", "dora"])},
        "precision": {"recipe": chance.choice(PRECISIONS)},
        "schedule": {"train_iters": 10},
        "bridge_overrides": _overrides(chance),
    }


def _overrides(chance: random.Random) -> dict[str, Any]:
    kind = chance.random()
    if kind < 0.4:
        return {}
    if kind < 0.55:
        return dict(chance.choice(MET))
    section = chance.choice(list(SECTIONS))
    return {section: {_field(chance, section): chance.choice(VALUES) for _ in range(chance.choice([1, 1, 2]))}}


def _field(chance: random.Random, section: str) -> str:
    name = chance.choice(sorted(TARGET.facts.types_of(SECTIONS[section])))
    return name.replace("e", "3", 1) if chance.random() < 0.05 else name
