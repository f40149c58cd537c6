"""Settings that a run does not keep, as the host overwrites, computes or ignores them: data, nothing is imported."""

from collections.abc import Mapping
from typing import Any

#: Setting that overwrites fields of other sections when a run starts -> those sections.
#: Source: megatron/bridge/training/config.py of 0.6.2, runtime_config_update; comm_overlap.py, setup.
DECIDERS: Mapping[str, tuple[str, ...]] = {
    "mixed_precision": ("model", "optimizer", "ddp"),
    "comm_overlap": ("model", "optimizer", "ddp"),
}
#: Setting that the host computes when the run starts -> the settings that it computes it from.
#: Source: megatron/bridge/training/config.py of 0.6.2, _calculate_scheduler_steps; megatron/core/transformer/
#: transformer_config.py of 0.19.2, which moves cuda_graph_scope to cuda_graph_impl and cuda_graph_modules.
WORKED_OUT: Mapping[str, tuple[str, ...]] = {
    "scheduler.lr_decay_steps": ("scheduler.lr_decay_iters",),
    "scheduler.lr_warmup_steps": ("scheduler.lr_warmup_iters",),
    "scheduler.wd_incr_steps": ("train.train_iters",),
    "scheduler.wsd_decay_steps": ("scheduler.lr_wsd_decay_iters",),
    "model.cuda_graph_scope": ("model.cuda_graph_impl", "model.cuda_graph_modules"),
}
#: Setting that depends on another one -> (that setting, its value that disables it).
DEPENDENT: Mapping[str, tuple[str, Any]] = {
    "model.cuda_graph_modules": ("model.cuda_graph_impl", "none"),
    "model.cuda_graph_scope": ("model.cuda_graph_impl", "none"),
}
#: Field of the tokenizer that its class computes -> (mapping, name in it, value without it, whether it is negated).
#: Source: megatron/bridge/training/tokenizers/config.py of 0.6.2, `__post_init__`, which validate() runs again.
OF_TOKENIZER: Mapping[str, tuple[str, str, bool, bool]] = {
    "tokenizer_hf_no_use_fast": ("hf_tokenizer_kwargs", "use_fast", True, True),
    "tokenizer_hf_no_include_special_tokens": ("hf_tokenizer_kwargs", "include_special_tokens", True, True),
    "trust_remote_code": ("hf_tokenizer_kwargs", "trust_remote_code", False, False),
    "tokenizer_sentencepiece_legacy": ("sp_tokenizer_kwargs", "legacy", False, False),
}
