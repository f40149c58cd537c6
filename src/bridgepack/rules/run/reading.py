"""Reads of a run that several modules of rules share."""

from __future__ import annotations

from bridgepack.rules.context import CannotJudgeError
from bridgepack.rules.run_subject import COLLATE_DATASETS, TEXT_DATASETS, RunSubject

#: Dataset configs for which validate() checks the loss under context parallelism and the sequence length.
#: Source: megatron/bridge/training/config.py:1439.
FINETUNING_DATASETS = TEXT_DATASETS | COLLATE_DATASETS
#: Dataset configs of pretraining.
PRETRAINING_DATASETS = frozenset({"GPTDatasetConfig", "GPTFIMDatasetConfig", "MockGPTDatasetConfig"})
#: Dataset configs of models that generate images or video; their rows hold no text to pack.
DIFFUSION_DATASETS = frozenset({"FluxDatasetConfig", "WanDatasetConfig"})


def is_on(subject: RunSubject, path: str) -> bool:
    """Say whether a switch is stated and on; one that nobody stated is off, as in the host's defaults."""
    return subject.settings.is_stated(path) and subject.settings.flag(path)


def is_set(subject: RunSubject, path: str) -> bool:
    """Say whether a setting is stated and not None."""
    return subject.settings.is_stated(path) and subject.settings.value(path) is not None


def stated_integer(subject: RunSubject, path: str) -> int | None:
    """Return a whole number; None where nobody stated it."""
    return subject.settings.integer_or_none(path) if subject.settings.is_stated(path) else None


def require_plain_gpus(subject: RunSubject) -> None:
    """Do nothing where all GPUs hold the language model.

    Raises:
        CannotJudgeError: some GPUs hold another part of the model.

    Source: megatron/bridge/training/config.py:1016, `dist_train`.
    """
    if is_on(subject, "model.dist_train.use_dist_train"):
        raise CannotJudgeError("model.dist_train gives the language model its own GPUs")
    if subject.settings.is_stated("model._target_") and "MIMO" in (subject.settings.class_name("model") or ""):
        raise CannotJudgeError("the parts of a MegatronMIMO model have parallelism of their own")


def is_text(subject: RunSubject) -> bool:
    """Say whether the dataset is `GPTSFTDatasetConfig`, under its new name or its old one."""
    return subject.dataset_kind in TEXT_DATASETS


def nearest_multiples(value: int, multiple: int) -> str:
    """Return the nearest multiples that are positive, in words: (36, 16) -> `32 or 48`."""
    below, above = value // multiple * multiple, -(-value // multiple) * multiple
    return f"{below} or {above}" if 0 < below < above else str(max(above, multiple))
