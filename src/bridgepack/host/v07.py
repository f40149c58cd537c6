"""Megatron-Bridge 0.7: what differs from 0.6. Source: main at 067f987df of 2026-08-22, with the core that it pins."""

from dataclasses import replace
from pathlib import Path

from bridgepack.host.v06 import V06

#: gpt_step gives every model the mask of padding, and these classes have no such argument.
_NO_MASK = "forward() got an unexpected keyword argument 'padding_mask'"
#: What vlm_step gives them, cut by the class itself.
_WHOLE_ROWS = f"with gpt_step {_NO_MASK}; with vlm_step the model gets whole rows, which no GPU has tried"
_EACH_WHOLE = f"with gpt_step {_NO_MASK}; with vlm_step each rank computes whole rows"
_BOUNDARIES = "ValueError: Packed MoE padding metadata has invalid logical or physical query boundaries"
_QWEN3 = {
    "context": "with gpt_step ValueError: Pre-sharded packed CP inputs require explicit rank-local 3D MRoPE "
    f"position_ids; with vlm_step {_BOUNDARIES}, in rows with a tail",
    "empty": f"torch.cat(): expected a non-empty list of Tensors, or {_BOUNDARIES}",
}

V07 = replace(
    V06,
    name="0.7",
    versions=">=0.7,<0.8",
    bridge="0.7.0",
    core="0.20.0",
    core_works=">=0.20.dev0",
    core_released=">=0.20.dev0,<0.21.dev0",
    withdrawn=(),
    # core/models/gpt/experimental_attention_variant_module_specs.py; core/transformer/transformer_config.py
    attention_variants=frozenset({"gated_delta_net", "gdn2", "dsa"}),
    values={"model.experimental_attention_variant": {"gdn": "gated_delta_net"}},
    trains_after_eos=True,  # data/packing/gpt_sft.py (collate_fn)
    gives_padding_mask=True,  # the same
    keeps_last_evaluation_batch=True,  # data/loaders.py (build_train_valid_test_data_loaders)
    refuses_uneven_rest=True,  # data/samplers.py (MegatronPretrainingSampler.__iter__)
    # training/gpt_step.py (_forward_step_common) and the classes' forward; executed as in 0.6
    text_packs={
        "Qwen3VLModelProvider": _QWEN3,
        "Qwen35VLModelProvider": _QWEN3,
        "Qwen25VLModelProvider": {"context": _EACH_WHOLE},
        "GLM45VModelProvider": {"refused": _NO_MASK + "; with vlm_step text has no mm_token_type_ids"},
        "Gemma4VLModelProvider": {"context": _WHOLE_ROWS},
        "Ministral3ModelProvider": {"context": _WHOLE_ROWS},
        "KimiK25VLModelProvider": {"step": "vlm_step", "context": ""},  # it cuts rows by their sequences now
        "MiniMaxM3VLModelProvider": {"step": "vlm_step", "context": _WHOLE_ROWS},
        "Qwen2AudioModelProvider": {"step": "vlm_step", "context": _EACH_WHOLE},
        "Ernie45VLModelProvider": {"refused": _NO_MASK + "; with vlm_step text has no mm_token_type_ids"},
        "NemotronVLModelProvider": {"refused": _NO_MASK + "; with vlm_step it misses the argument images"},
        "NemotronOmniModelProvider": {"step": "vlm_step", "refused": ""},
    },
    # models/nemotron_omni/modeling_nemotron_omni.py
    language_models={"NemotronOmniModelProvider": "language_model."},
    bases=Path(__file__).with_name("bases_v07.json"),
    # bridge/models/conversion/auto_bridge.py, get_model_config; recipes/llama/h100/llama3.py: Llama alone has moved.
    built_from_parts=frozenset({"LlamaForCausalLM"}),
    # bridge/models/conversion/auto_bridge.py, _set_source_metadata; providers have the field as before.
    renames={"model.hf_model_id": "model.extra_checkpoint_metadata.hf_model_id"},
    expands_brackets=True,  # data/packing/paths.py (_resolve_parquet_paths)
    frees_hybrid_inputs=False,  # peft/recompute.py, where 0.6.2 has HybridStack beside TransformerBlock
    empties_null_content=True,  # data/conversation_processing.py (normalize_chat_conversation)
    parses_call_arguments=True,  # the same
    trims_thought_openings=True,  # the same file (infer_assistant_mask_boundary_config)
    loads_models_from_parts=False,  # training/checkpointing.py:2831 looks for their sizes beside the transformer
    refuses_untrained_completions=True,  # data/sft_processing.py (tokenize_prompt_completion_example)
)
