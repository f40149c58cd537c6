"""Recipes for long contexts: the plain baseline of 16384 tokens, and context parallelism on two levels.

State per GPU, as the docstrings name it: 8.03e9 parameters / TP of 2 + 4 + 12 / (DP x CP) bytes (bf16 weights, fp32
gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks). Activations and logits come on top.
"""

from typing import Any

from bridgepack import SFTRecipe


def llama31_8b_sft_8gpu_h100_bf16_16k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 16384 tokens on 8 H100s: TP 2 x CP 2 x DP 2.

    A baseline for context parallelism: ring exchange, CP 2, 8192 tokens per rank, all on one node. 34 GiB of state per
    GPU.
    """
    return _recipe(
        "llama31_8b_sft_8gpu_h100_bf16_16k_recipe",
        packing={"packed_sequence_size": 16384},
        parallelism={"num_gpus": 8, "context_parallel_size": 2},
        data={"train": "data/chats.jsonl", "validation_fraction": 0.05},
    )


def llama31_8b_sft_16gpu_h100_bf16_128k_hierarchical_cp_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B on single sequences of up to 131072 tokens on 16 H100s: TP 2 x CP 8 x DP 1.

    CP 8 has two levels: 4 ranks exchange heads (all-to-all; 4 of the 8 key-value heads are on each tensor-parallel
    rank) within a node, whose 8 GPUs they fill with TP 2, and 2 such groups form a ring between nodes. Whole layers
    are recomputed. 28 GiB of state per GPU.

    Nothing is packed: TransformerEngine 2.17 and 2.18 refuse packed rows under `a2a+p2p` ("thd format is not supported
    with hierarchical CP implementation yet!", attn_forward_func_with_cp in context_parallel.py); its pull request 3290
    lifts that for 2.19. Use it for data with only long conversations and set `schedule.train_iters`, because the host
    does not count epochs of data that it reads itself. For packs of 131072 tokens use
    `llama31_8b_sft_16gpu_h100_bf16_128k_recipe`, which uses only the ring.
    """
    return _recipe(
        "llama31_8b_sft_16gpu_h100_bf16_128k_hierarchical_cp_recipe",
        packing={"packed_sequence_size": 131072, "mode": "none"},
        parallelism={
            "num_gpus": 16,
            "context_parallel_size": 8,
            "cp_comm_type": "a2a+p2p",
            "hierarchical_context_parallel_sizes": (4, 2),
        },
        data={
            "train": "data/chats.jsonl",
            "layout": {"kind": "chat", "messages": [{"from_column": "messages"}]},  # the host reads the rows itself
        },
        recompute="full",
        schedule={"train_iters": 500},
    )


def _recipe(
    name: str,
    *,
    packing: dict[str, Any],
    parallelism: dict[str, Any],
    data: dict[str, Any],
    recompute: str | None = None,
    schedule: dict[str, Any] | None = None,
) -> SFTRecipe:
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": data,
            "tokenizer": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct"},
            "packing": packing,
            "parallelism": {"tensor_model_parallel_size": 2, "sequence_parallel": True, **parallelism},
            "batch": {"tokens_per_step": 524288},
            "model": {"name": "llama31_8b_sft_2gpu_h100_bf16_config", "recompute": recompute},
            "schedule": schedule or {},
            "checkpoint": {"pretrained": "checkpoints/Llama-3.1-8B-Instruct", "folder": f"runs/{name}"},
        }
    )
