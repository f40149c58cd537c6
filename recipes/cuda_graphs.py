"""Recipes with CUDA graphs over packed rows.

A graph replays one shape: every row is padded to packed_sequence_size, and its boundaries to the maximum sequences per
pack, which the host reads from the artifact's bridge_metadata.json.

Full-iteration graphs are left out on purpose. Megatron-Bridge 0.6.2 accepts them with packed rows, and then
copies the rows' max_seqlen from the GPU while it captures (get_batch_from_iterator in training/gpt_step.py), as
megatron-core does with the boundaries for rotary embeddings that are not fused; CUDA refuses both.
"""

from bridgepack import SFTRecipe


def llama31_8b_sft_8gpu_h100_bf16_cuda_graphs_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 4096 tokens on 8 H100s: TP 2 x DP 4, CUDA graphs of every MLP.

    Attention over packed rows stays outside the graphs, as in upstream's own benchmarks of packed Llama 3. At most 64
    sequences share a pack, so that the padded lists of boundaries stay short. 34 GiB of state per GPU: 8.03e9
    parameters / TP of 2 + 4 + 12 / DP bytes (bf16 weights, fp32 gradients, fp32 weights and both moments of Adam);
    activations, logits and the memory of the graphs come on top.
    """
    name = "llama31_8b_sft_8gpu_h100_bf16_cuda_graphs_recipe"
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct"},
            "packing": {"packed_sequence_size": 4096, "pad_cu_seqlens": True, "max_sequences_per_pack": 64},
            "parallelism": {"num_gpus": 8, "tensor_model_parallel_size": 2, "sequence_parallel": True},
            "batch": {"tokens_per_step": 524288},
            "model": {"name": "llama31_8b_sft_2gpu_h100_bf16_config"},
            "cuda_graphs": {"implementation": "transformer_engine", "modules": ("mlp",)},
            "checkpoint": {"pretrained": "checkpoints/Llama-3.1-8B-Instruct", "folder": f"runs/{name}"},
        }
    )
