"""Reads and guards of a run that several rule modules share."""

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
#: Model classes that turn the loss per token on themselves with context parallelism.
#: Source: megatron/bridge/models/qwen_vl/qwen3_vl_provider.py:137,302, qwen35_vl_provider.py:206,396, `finalize`.
_PER_TOKEN_BY_CLASS = frozenset(
    f"Qwen{version}VL{kind}ModelProvider" for version in ("3", "35") for kind in ("", "MoE")
)
#: For `when=`, like those of `engine.subject`.
EVALUATES, HAS_EXPERTS = map(attrgetter, ("evaluates", "is_mixture_of_experts"))


def splits_context(run: Run) -> bool:
    """Return whether training splits each sequence over several ranks."""
    return run.context_parallel_size > 1


def pads_in_collate(run: Run) -> bool:
    """Return whether the dataset is a dataset of the host whose collate pads and packs rows."""
    return run.dataset_kind in COLLATE_DATASETS


def fine_tunes(run: Run) -> bool:
    """Return whether the dataset is a fine-tuning dataset of the host, not the user's own class."""
    return run.dataset_kind in FINETUNING_DATASETS


def has_own_dataset(run: Run) -> bool:
    """Return whether the dataset is not a fine-tuning dataset of the host."""
    return not fine_tunes(run)


def switches_on(run: Run, *paths: str) -> list[str]:
    """Return the paths whose value is the literal true."""
    return [path for path in paths if run.stated(path) is True]


def acting(run: Run, name: str) -> str:
    """Return the path of the overlap setting that takes effect: if `comm_overlap` is set, it overrides the model's.

    Source: megatron/bridge/training/comm_overlap.py, _get_model_comm_overlap_cfgs.
    """
    return f"{'model' if run.stated('comm_overlap') is None else 'comm_overlap'}.{name}"


def truths(run: Run) -> tuple[SplitTruth, ...]:
    """Return the facts about the artifact's splits; raises `CannotJudgeError` without an artifact."""
    return run.require_artifact().require_truths()


def computes_loss_per_token(run: Run) -> bool:
    """Return whether the loss is computed per token after the host has completed its settings."""
    is_known = splits_context(run) and run.is_stated("model._target_")
    return (is_known and run.class_name("model") in _PER_TOKEN_BY_CLASS) or run.flag("model.calculate_per_token_loss")


def per_token_loss(run: Run, why: str = "every trained token weighs the same") -> tuple[Change, ...]:
    """Return the changes that turn the loss per token on and, if needed, averaging in the collective off."""
    changes = change("model.calculate_per_token_loss", True, why)
    if run.is_on("ddp.average_in_collective"):
        changes += change("ddp.average_in_collective", False, "the loss per token forbids averaging in the collective")
    return changes


def nearest_multiples(value: int, multiple: int) -> str:
    """Return the nearest positive multiples as text: (36, 16) -> `32 or 48`."""
    below, above = value // multiple * multiple, -(-value // multiple) * multiple
    return f"{below} or {above}" if 0 < below < above else str(max(above, multiple))
