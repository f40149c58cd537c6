"""A run as rules judge it: its settings, values derived from them, and optional facts such as artifact and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from bridgepack import geometry
from bridgepack.host import HostRelease
from bridgepack.records import RunConfig
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.context import (
    NO_ENVIRONMENT,
    NO_PACKS,
    CannotJudgeError,
    require,
    require_known,
    require_known_release,
)
from bridgepack.rules.judging.environment import Environment as Environment
from bridgepack.rules.judging.environment import Versions
from bridgepack.rules.judging.facts import ArtifactFacts, SlowFacts
from bridgepack.rules.judging.families import ARCHITECTURES, Family, family_of
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.loaded import in_current_names, with_host_defaults
from bridgepack.rules.judging.settings import Settings, integer_at, number_format_of, size_at, unfit

#: Path of the packing settings.
SPECS = "dataset.offline_packing_specs"
#: Dataset configs whose collate pads rows; all others except TEXT_DATASETS are custom providers.
COLLATE_DATASETS = frozenset({"DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig"})
#: Text dataset configs, the second under the name before 0.6.
TEXT_DATASETS = frozenset({"GPTSFTDatasetConfig", "FinetuningDatasetConfig"})
#: Default multiple of row widths if `pad_to_max_length` is off.
#: Source: megatron/bridge/data/packing/gpt_sft.py, the collate's `pad_seq_length_to_mult`.
DEFAULT_WIDTH_MULTIPLE = 16


@dataclass(frozen=True, kw_only=True)
class Run(Settings):
    """The subject of a rule on a run: typed reads of its settings, and values derived from them.

    Reads and properties raise `CannotJudgeError` if they need a setting or a fact that is missing.
    """

    versions: Versions  #: of the host and its companions that the run is judged for
    world_size_given: int | None = None  #: number of GPUs, from outside the settings
    artifact: ArtifactFacts | None = None  #: facts about the packs after their rows have been streamed
    environment: Environment | None = None  #: the environment of the run
    files: Files | None = None  #: the file system; None if files are not checked
    slow_facts: SlowFacts = field(default_factory=SlowFacts)  #: asked where a rule needs one

    @property
    def release(self) -> HostRelease:
        """The release of Megatron-Bridge, for its habits; raises `CannotJudgeError` if it is newer than all known."""
        return require_known_release(self.versions.release)

    @cached_property
    def loaded_config(self) -> RunConfig:
        """The settings as the host loads them, under the names of 0.6 for every version."""
        return with_host_defaults(in_current_names(self.config, self.versions), self.versions)

    def require_artifact(self) -> ArtifactFacts:
        """Return the artifact's facts, or raise `CannotJudgeError`."""
        return require(self.artifact, NO_PACKS)

    def require_environment(self) -> Environment:
        """Return the environment, or raise `CannotJudgeError`."""
        return require(self.environment, NO_ENVIRONMENT)

    def require_files(self) -> Files:
        """Return the file system, or raise `CannotJudgeError`."""
        return require(self.files, "files are not checked")

    @cached_property
    def packs_offline(self) -> bool:
        """Whether `enable_offline_packing` is on."""
        return bool(self.value("dataset.enable_offline_packing"))

    @cached_property
    def packs_in_batch(self) -> bool:
        """Whether `enable_in_batch_packing` is on."""
        return bool(self.stated_value("dataset.enable_in_batch_packing"))

    @cached_property
    def is_packed(self) -> bool:
        """Whether rows hold several sequences, packed offline or in the batch."""
        return self.packs_offline or self.packs_in_batch

    @cached_property
    def has_specs(self) -> bool:
        """Whether offline packing is on and `offline_packing_specs` is set."""
        return self.packs_offline and self.value(SPECS) is not None

    @cached_property
    def dataset_kind(self) -> str:
        """Class of the dataset config, e.g. `GPTSFTDatasetConfig`."""
        return self.class_name("dataset") or "None"

    @cached_property
    def is_text(self) -> bool:
        """Whether the dataset is `GPTSFTDatasetConfig`, under its current or an earlier name."""
        return self.dataset_kind in TEXT_DATASETS

    @cached_property
    def dataset_kwargs(self) -> Mapping[str, Any]:
        """`dataset.dataset_kwargs`; empty if not set."""
        path = "dataset.dataset_kwargs"
        return self.mapping(path) if self._knows(path) else {}

    #: Runtime tokens that a pack can hold.
    packed_sequence_size = integer_at(f"{SPECS}.packed_sequence_size")
    #: Multiple of every sequence's runtime length in the settings.
    pad_seq_to_mult = integer_at(f"{SPECS}.pad_seq_to_mult")
    #: `model.seq_length`, tokens.
    seq_length = integer_at("model.seq_length")

    @cached_property
    def pads_to_max_length(self) -> bool:
        """Whether every row is padded to packed_sequence_size: the host checks for the literal True."""
        flags = (self.stated_value("dataset.pad_to_max_length"), self.dataset_kwargs.get("pad_to_max_length"))
        return any(value is True for value in flags)

    #: Ranks that share each layer's weights.
    tensor_model_parallel_size = size_at("model.tensor_model_parallel_size")
    #: Pipeline stages.
    pipeline_model_parallel_size = size_at("model.pipeline_model_parallel_size")
    #: Ranks that share each sequence.
    context_parallel_size = size_at("model.context_parallel_size")

    @cached_property
    def eval_context_parallel_size(self) -> int | None:
        """Context parallelism of evaluation, or None if not set."""
        return self.integer_or_none("dist.eval_context_parallel_size")

    @cached_property
    def stated_context_parallel_sizes(self) -> tuple[int, ...]:
        """Context parallelism of training, then of evaluation if it differs; validate() checks both."""
        evaluation = self.eval_context_parallel_size
        return tuple(dict.fromkeys((self.context_parallel_size, evaluation or self.context_parallel_size)))

    @cached_property
    def context_parallel_sizes(self) -> tuple[int, ...]:
        """Context parallelism in use: training's, then evaluation's if the run evaluates with its own process groups.

        Source: megatron/bridge/training/setup.py:472; evaluation has its own groups only if they are decentralized.
        """
        sizes = self.stated_context_parallel_sizes
        groups = "dist.use_decentralized_pg"
        may_have_groups = not self._knows(groups) or self.flag(groups)
        return sizes if len(sizes) > 1 and may_have_groups and self.evaluates else sizes[:1]

    #: Ranks that share the experts.
    expert_model_parallel_size = size_at("model.expert_model_parallel_size")

    @cached_property
    def splits_sequence(self) -> bool:
        """Whether sequence parallelism is active: it is on and tensor parallelism is above 1."""
        return self.flag("model.sequence_parallel") and self.tensor_model_parallel_size > 1

    @cached_property
    def world_size(self) -> int:
        """Number of GPUs."""
        size = self.world_size_given or self.config.world_size
        return require(size, "the number of GPUs is unknown; add --world-size N")

    @cached_property
    def model_parallel_size(self) -> int:
        """GPUs of one copy of the model, without expert parallelism."""
        return self.model_parallel_size_with(self.context_parallel_size)

    def model_parallel_size_with(self, context_parallel_size: int) -> int:
        """Return the GPUs of one copy of the model with this context parallel size."""
        return geometry.model_parallel_size(
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            pipeline_model_parallel_size=self.pipeline_model_parallel_size,
            context_parallel_size=context_parallel_size,
        )

    @cached_property
    def data_parallel_size(self) -> int:
        """Copies of the model; raises `CannotJudgeError` if the number of GPUs is not a multiple of a copy's."""
        size = self.data_parallel_size_with(self.context_parallel_size)
        if size == 0:
            raise CannotJudgeError(f"{self.world_size} GPUs are not a multiple of {self.model_parallel_size}")
        return size

    def data_parallel_size_with(self, context_parallel_size: int) -> int:
        """Return the copies of the model with this context parallel size, 0 if the number of GPUs is no multiple."""
        return geometry.data_parallel_size(
            world_size=self.world_size,
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            pipeline_model_parallel_size=self.pipeline_model_parallel_size,
            context_parallel_size=context_parallel_size,
        )

    def require_plain_gpus(self) -> None:
        """Raise `CannotJudgeError` unless all GPUs hold the language model.

        Source: megatron/bridge/training/config.py:1016, `dist_train`.
        """
        if self.is_on("model.dist_train.use_dist_train"):
            raise CannotJudgeError(say("{model.dist_train} gives the language model its own GPUs"))
        if self.is_stated("model._target_") and "MIMO" in (self.class_name("model") or ""):
            raise CannotJudgeError("the parts of a MegatronMIMO model have their own parallel sizes")

    @cached_property
    def needed_sequence_multiple(self) -> int:
        """Required multiple of every sequence's runtime length: 2 x context parallelism, for training and evaluation.

        Source: rule catalogue 4.1, HARD segment.
        """
        return _sequence_multiple(self.context_parallel_sizes)

    @cached_property
    def needed_width_multiple(self) -> int:
        """Required multiple of every row's width, including sequence parallelism.

        Source: rule catalogue 4.1, HARD width.
        """
        return self._width_multiple(self.context_parallel_sizes)

    @cached_property
    def stated_width_multiple(self) -> int:
        """Required multiple of row widths for all context parallel sizes set, as validate() checks it for collates."""
        return self._width_multiple(self.stated_context_parallel_sizes)

    @cached_property
    def recommended_pad_seq_to_mult(self) -> int:
        """The multiple that the host's documentation recommends, from `geometry.pad_seq_to_mult`."""
        return geometry.pad_seq_to_mult(
            context_parallel_size=self.context_parallel_size,
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            sequence_parallel=self.splits_sequence,
            eval_context_parallel_size=self.eval_context_parallel_size,
        )

    @cached_property
    def width_multiple(self) -> int:
        """Multiple of every row's width if rows are not padded to the full size.

        Source: rule catalogue PSB112.
        """
        rounding = self.dataset_kwargs.get("pad_seq_length_to_mult", DEFAULT_WIDTH_MULTIPLE)
        if type(rounding) is not int or rounding < 1:
            raise unfit("dataset.dataset_kwargs.pad_seq_length_to_mult", rounding, "not a positive whole number")
        return self.pad_seq_to_mult if self.pad_seq_to_mult % rounding == 0 else rounding

    #: Rows per forward on one data-parallel rank.
    micro_batch_size = integer_at("train.micro_batch_size")
    #: Rows per optimiser step.
    global_batch_size = integer_at("train.global_batch_size")

    #: Rows per evaluation forward; training's if not set.
    eval_micro_batch_size = integer_at("validation.eval_micro_batch_size", instead="train.micro_batch_size")
    #: Rows per evaluation step; training's if not set.
    eval_global_batch_size = integer_at("validation.eval_global_batch_size", instead="train.global_batch_size")

    @cached_property
    def eval_iters(self) -> int | None:
        """Steps of one evaluation; `train.eval_iters`, the name before 0.4, still takes precedence.

        Source: megatron/bridge/training/config.py:1517.
        """
        train_eval_iters = self.stated_integer("train.eval_iters")
        return self.integer_or_none("validation.eval_iters") if train_eval_iters is None else train_eval_iters

    @cached_property
    def evaluates(self) -> bool:
        """Whether validation runs: do_validation is on and eval_iters is not 0."""
        if not self.flag("dataset.do_validation"):
            return False
        has_eval_iters = any(self.is_stated(f"{section}.eval_iters") for section in ("validation", "train"))
        return not has_eval_iters or self.eval_iters != 0

    @cached_property
    def family(self) -> Family:
        """Family of the model; raises `CannotJudgeError` if it is unknown."""
        return require_known(family_of(self.config), "the family of the model")

    def model_setting(self, name: str) -> Any:
        """Return a setting of the model's architecture, `model.{name}`, or None if it is not set.

        If the settings are incomplete, the checkpoint decides: then it is the value of the family.
        """
        path = f"model.{name}"
        if self._knows(path):
            return self.value(path)
        place, family = self.config.place, self.family.name
        template = "{path} is not set in {place}, and unknown for the family {family}"
        reason = say(template, path=setting(path), place=place, family=family)
        return require(ARCHITECTURES.get(family), reason).get(name)

    @cached_property
    def cp_comm_types(self) -> tuple[str, ...]:
        """How context-parallel ranks exchange keys and values, each kind once (default: `p2p`)."""
        kinds = self.model_setting("cp_comm_type") or "p2p"
        return tuple(dict.fromkeys(map(str, kinds if isinstance(kinds, (list, tuple)) else (kinds,))))

    #: Number format of matrix products: `bf16`, `fp8`, `mxfp8` or `nvfp4`.
    number_format = cached_property(number_format_of)

    @cached_property
    def is_mixture_of_experts(self) -> bool:
        """Whether the model has experts."""
        return bool(self.integer_or_none("model.num_moe_experts"))

    #: Number of multi-token-prediction layers.
    num_mtp_layers = integer_at("model.mtp_num_layers", default=0)

    def _width_multiple(self, sizes: tuple[int, ...]) -> int:
        tensor = self.tensor_model_parallel_size if self.splits_sequence else 1
        return math.lcm(_sequence_multiple(sizes), *(size * tensor if tensor > 1 else 1 for size in sizes))

    def _knows(self, path: str) -> bool:
        return self.config.is_whole_at(path) or self.is_stated(path)


#: For `when=`: the rule applies to such runs only.
PACKS_OFFLINE, PACKS_IN_BATCH, IS_PACKED, HAS_SPECS, IS_TEXT = map(
    attrgetter, ("packs_offline", "packs_in_batch", "is_packed", "has_specs", "is_text")
)


def _sequence_multiple(sizes: tuple[int, ...]) -> int:
    return math.lcm(*(2 * size if size > 1 else 1 for size in sizes))
