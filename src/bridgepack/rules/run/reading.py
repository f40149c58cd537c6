"""Reads of a run that several modules of rules share."""

from __future__ import annotations

from bridgepack.rules.engine.subject import COLLATE_DATASETS, TEXT_DATASETS

#: Dataset configs for which validate() checks the loss under context parallelism and the sequence length.
#: Source: megatron/bridge/training/config.py:1439.
FINETUNING_DATASETS = TEXT_DATASETS | COLLATE_DATASETS
#: Dataset configs of pretraining.
PRETRAINING_DATASETS = frozenset({"GPTDatasetConfig", "GPTFIMDatasetConfig", "MockGPTDatasetConfig"})
#: Dataset configs of models that generate images or video; their rows hold no text to pack.
DIFFUSION_DATASETS = frozenset({"FluxDatasetConfig", "WanDatasetConfig"})


def nearest_multiples(value: int, multiple: int) -> str:
    """Return the nearest multiples that are positive, in words: (36, 16) -> `32 or 48`."""
    below, above = value // multiple * multiple, -(-value // multiple) * multiple
    return f"{below} or {above}" if 0 < below < above else str(max(above, multiple))
