"""How a run would turn rows into tokens, as its settings have it; shared by rules on tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.subject import SPECS, TEXT_DATASETS, Run

CHAT, PROMPT_COMPLETION, LEGACY = "chat", "prompt_completion", "legacy"
_KINDS = {"ChatSFTPreprocessingConfig": CHAT, "PromptCompletionSFTPreprocessingConfig": PROMPT_COMPLETION}


def host_packs(run: Run) -> bool:
    """Return whether the host packs training rows itself: no packs are named."""
    return run.packs_offline and run.value(f"{SPECS}.packed_train_data_path") is None


def preprocessing_kind(run: Run) -> str:
    """Return `chat`, `prompt_completion`, or `legacy` for prompts by `dataset_kwargs`.

    Source: megatron/bridge/data/builders/gpt_sft.py, resolve_gpt_sft_preprocessing.
    """
    if run.dataset_kind not in TEXT_DATASETS:
        raise CannotJudgeError(f"the dataset is a {run.dataset_kind}")
    name = run.class_name("dataset.preprocessing")
    if name is not None:
        return _KINDS.get(name, name)
    if run.value("dataset.hf_dataset") is not None:
        return CHAT
    return CHAT if run.dataset_kwargs.get("chat") else LEGACY


def prompt_completion(run: Run) -> Mapping[str, Any]:
    """Return the settings of prompt-completion preprocessing that a run tokenises with; empty where it does not."""
    if not host_packs(run) or preprocessing_kind(run) != PROMPT_COMPLETION:
        return {}
    return run.mapping("dataset.preprocessing")
