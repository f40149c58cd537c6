"""Megatron-Bridge 0.7: what differs from 0.6. Source: main at 067f987df of 2026-08-22, with the core that it pins."""

from dataclasses import replace
from pathlib import Path

from bridgepack.host.v06 import V06

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
    bases=Path(__file__).with_name("bases_v07.json"),
    # bridge/models/conversion/auto_bridge.py, get_model_config; recipes/llama/h100/llama3.py: Llama alone has moved.
    built_from_parts=frozenset({"LlamaForCausalLM"}),
    # bridge/models/conversion/auto_bridge.py, _set_source_metadata; providers have the field as before.
    renamed={"model.hf_model_id": "model.extra_checkpoint_metadata.hf_model_id"},
    empties_null_content=True,  # data/conversation_processing.py (normalize_chat_conversation)
    parses_call_arguments=True,  # the same
    loads_models_from_parts=False,  # training/checkpointing.py:2831 looks for their sizes beside the transformer
    refuses_untrained_completions=True,  # data/sft_processing.py (tokenize_prompt_completion_example)
)
