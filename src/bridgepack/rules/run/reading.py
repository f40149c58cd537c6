"""Reads and guards of a run that several rule modules share."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from operator import attrgetter
from typing import Any

from bridgepack.host.modules import DELTA_NETS
from bridgepack.records import Change
from bridgepack.records.messages import Message, say
from bridgepack.rules.judging.rule import change
from bridgepack.rules.judging.subject import COLLATE_DATASETS, TEXT_DATASETS, Run
from bridgepack.rules.judging.truth import SplitTruth

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
#: For `when=`, like those of `judging.subject`.
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
    return [path for path in paths if run.stated_value(path) is True]


def variable(run: Run, name: str) -> str | None:
    """Return a variable of the run's environment as its processes have it, or None if no setting gives it."""
    variables = run.stated_value("env_vars")
    value = variables.get(name) if isinstance(variables, Mapping) else None
    return None if value is None else str(value)


def acting(run: Run, name: str) -> str:
    """Return the path of the overlap setting that takes effect: if `comm_overlap` is set, it overrides the model's.

    Source: megatron/bridge/training/comm_overlap.py, _get_model_comm_overlap_cfgs.
    """
    return f"{'model' if run.stated_value('comm_overlap') is None else 'comm_overlap'}.{name}"


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


_BATCH, _TOKENS_FIELD = "train.global_batch_size", "batch.tokens_per_step"


def smallest_batch(run: Run) -> int:
    """Return micro_batch_size x data-parallel ranks, of which every batch is a multiple; without GPUs, the former."""
    sizes = (
        run.stated_integer(f"model.{kind}_parallel_size") for kind in ("tensor_model", "pipeline_model", "context")
    )
    num_gpus, copy = run.world_size_given or run.config.world_size or 0, prod(max(size or 1, 1) for size in sizes)
    return max(run.micro_batch_size, 1) * (num_gpus // copy if num_gpus % copy == 0 and num_gpus else 1)


def batch_set_to(run: Run, packs: int, *, is_most: bool = False) -> Message:
    """Return the field that sets the batch, and its value for some packs: `batch.tokens_per_step to 20480 (5 packs)`.

    `is_most`: smaller values are right, too.
    """
    at_most, noun = "at most " if is_most else "", "pack" if packs == 1 else "packs"
    if run.config.user_path(_BATCH) != _TOKENS_FIELD:
        value = f"{packs} {noun}"
    else:
        value = f"{packs * run.packed_sequence_size} ({packs} {noun})"
    return say("{train.global_batch_size} to {most}{value}", most=at_most, value=value)


#: Entries of `cuda_graph_modules` and `cuda_graph_scope` that are not modules of a layer.
#: Source: megatron/bridge/utils/cuda_graph.py:65-74.
_NO_MODULES = frozenset({"full_iteration", "full_iteration_inference", "full", ""})


def attention_backend(run: Run) -> str | None:
    """Return the attention backend that is set, e.g. `flash`, or None."""
    return run.text_or_none("model.attention_backend")


def backend_takes_effect(run: Run) -> bool:
    """Return whether the backend has an effect: the host compares enum members and ignores a plain string.

    Source: megatron/core/models/common/language_module/language_module.py:123-145.
    """
    return isinstance(run.value("model.attention_backend"), Mapping)


def pads_between_sequences(run: Run) -> bool:
    """Return whether sequences are padded to a multiple, so that logical and physical boundaries differ."""
    if run.packs_offline:
        return run.pad_seq_to_mult > 1
    return run.packs_in_batch and run.recommended_pad_seq_to_mult > 1


def replaces_attention(run: Run) -> bool:
    """Return whether the model has its own attention, to which TransformerEngine's limits do not apply."""
    return run.model_setting("experimental_attention_variant") not in {None, *DELTA_NETS}


def uses_engine_attention(run: Run) -> bool:
    """Return whether attention is TransformerEngine's."""
    return not replaces_attention(run)


def has_constant_width(run: Run) -> bool:
    """Return whether every row is as wide as the model's sequence length."""
    return run.pads_to_max_length and run.packed_sequence_size == run.seq_length


#: Values of `model.cuda_graph_impl`.
GRAPH_IMPLS = ("none", "local", "transformer_engine", "full_iteration")


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCapture:
    """The parts of a step that CUDA graphs capture."""

    setting: str  #: value of `model.cuda_graph_impl`
    impl: str  #: effective value: `none`, `local`, `transformer_engine` or `full_iteration`
    modules: tuple[str, ...]  #: modules of a layer that are set; empty means whole layers
    scopes: tuple[str, ...]  #: all entries, including those that are not modules
    path: str  #: setting that turns graphs on
    off: Any  #: value that turns them off

    @property
    def is_on(self) -> bool:
        """Whether anything is captured."""
        return self.impl in GRAPH_IMPLS[1:]

    @property
    def is_full_iteration(self) -> bool:
        """Whether forward and backward of a step are one graph."""
        return self.impl == "full_iteration"

    @property
    def is_training(self) -> bool:
        """Whether the host treats the graphs as training graphs."""
        return self.impl in ("full_iteration", "transformer_engine")

    @property
    def captures_attention(self) -> bool:
        """Whether a training graph contains packed attention."""
        return self.is_full_iteration or (
            self.impl == "transformer_engine" and (not self.modules or "attn" in self.modules)
        )


def graph_capture(run: Run) -> GraphCapture:
    """Return the parts that CUDA graphs capture, from settings with the new and the old names.

    Source: megatron/bridge/utils/cuda_graph.py:28-131; megatron/core/transformer/transformer_config.py:2365-2381.
    """
    setting = run.text_or_none("model.cuda_graph_impl") or "none"
    old = {"enable_cuda_graph": "local", "external_cuda_graph": "transformer_engine"}
    flag = next((name for name in old if setting == "none" and run.stated_value(f"model.{name}")), "")
    entries = (graph_entries(run, f"model.cuda_graph_{name}") for name in ("modules", "scope"))
    scopes = tuple(dict.fromkeys(chain(*entries)))
    is_whole = setting == "local" and "full_iteration" in scopes
    return GraphCapture(
        setting=setting,
        impl="full_iteration" if is_whole else old.get(flag, setting),
        modules=() if setting == "none" else tuple(name for name in scopes if name not in _NO_MODULES),
        scopes=scopes,
        path=f"model.{flag or 'cuda_graph_impl'}",
        off=False if flag else "none",
    )


def graph_entries(run: Run, path: str) -> tuple[str, ...]:
    """Return the entries of the setting at a path, e.g. `("attn", "mlp")`."""
    value = run.stated_value(path)
    items = value if isinstance(value, (list, tuple)) else (value,)
    names = (item.get("_name_") if isinstance(item, Mapping) else item for item in items if item is not None)
    return tuple(name.rpartition(".")[2] for item in names for name in str(item).split(","))
