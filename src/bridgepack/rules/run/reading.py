"""Reads and guards of a run that several modules of rules share."""

from operator import attrgetter

from bridgepack.records import Change
from bridgepack.rules.engine.rule import change
from bridgepack.rules.engine.subject import COLLATE_DATASETS, TEXT_DATASETS, Run
from bridgepack.rules.engine.truth import SplitTruth

#: Dataset configs for which validate() checks the loss under context parallelism and the sequence length.
#: Source: megatron/bridge/training/config.py:1439.
FINETUNING_DATASETS = TEXT_DATASETS | COLLATE_DATASETS
#: Dataset configs of pretraining.
PRETRAINING_DATASETS = frozenset({"GPTDatasetConfig", "GPTFIMDatasetConfig", "MockGPTDatasetConfig"})
#: Dataset configs of models that generate images or video; their rows hold no text to pack.
DIFFUSION_DATASETS = frozenset({"FluxDatasetConfig", "WanDatasetConfig"})
#: Classes of models that turn the loss per token on by themselves under context parallelism.
#: Source: megatron/bridge/models/qwen_vl/qwen3_vl_provider.py:137,302, qwen35_vl_provider.py:206,396, `finalize`.
_PER_TOKEN_BY_CLASS = frozenset(
    f"Qwen{version}VL{kind}ModelProvider" for version in ("3", "35") for kind in ("", "MoE")
)
#: For `when=`, like those of `engine.subject`.
EVALUATES, HAS_EXPERTS = map(attrgetter, ("evaluates", "is_mixture_of_experts"))


def splits_context(run: Run) -> bool:
    """Say whether training splits each sequence over several ranks."""
    return run.context_parallel_size > 1


def pads_in_collate(run: Run) -> bool:
    """Say whether the dataset is one of the host's whose collate pads and packs rows."""
    return run.dataset_kind in COLLATE_DATASETS


def fine_tunes(run: Run) -> bool:
    """Say whether the dataset is one that the host fine-tunes with; a user's own class is none."""
    return run.dataset_kind in FINETUNING_DATASETS


def has_own_dataset(run: Run) -> bool:
    """Say whether the dataset's class is none that the host fine-tunes with."""
    return not fine_tunes(run)


def switches_on(run: Run, *paths: str) -> list[str]:
    """Return those of some switches that are stated as the literal true."""
    return [path for path in paths if run.stated(path) is True]


def truths(run: Run) -> tuple[SplitTruth, ...]:
    """Return the facts about the artifact's splits; raises `CannotJudgeError` where there are none."""
    return run.require_artifact().require_truths()


def computes_loss_per_token(run: Run) -> bool:
    """Say whether the loss is computed per token once the host has completed its settings."""
    is_known = splits_context(run) and run.is_stated("model._target_")
    return (is_known and run.class_name("model") in _PER_TOKEN_BY_CLASS) or run.flag("model.calculate_per_token_loss")


def per_token_loss(run: Run, why: str = "every trained token weighs the same") -> tuple[Change, ...]:
    """Return the changes that turn the loss per token on, with the collective that goes with it."""
    changes = change("model.calculate_per_token_loss", True, why)
    if run.is_on("ddp.average_in_collective"):
        changes += change("ddp.average_in_collective", False, "the loss per token forbids averaging in the collective")
    return changes


def nearest_multiples(value: int, multiple: int) -> str:
    """Return the nearest multiples that are positive, in words: (36, 16) -> `32 or 48`."""
    below, above = value // multiple * multiple, -(-value // multiple) * multiple
    return f"{below} or {above}" if 0 < below < above else str(max(above, multiple))
