"""A run as rules judge it: settings with the values that follow from them, and whatever else is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from bridgepack import geometry
from bridgepack.records import Files, RunConfig, Waiting
from bridgepack.rules.engine.context import NO_ENVIRONMENT, NO_PACKS, CannotJudgeError, given, known
from bridgepack.rules.engine.environment import Environment as Environment
from bridgepack.rules.engine.environment import Versions
from bridgepack.rules.engine.facts import ArtifactFacts
from bridgepack.rules.engine.families import ARCHITECTURES, Family, family_of
from bridgepack.rules.engine.loaded import in_current_names, with_host_defaults
from bridgepack.rules.engine.settings import Settings, number_format_of

#: Where packs are described.
SPECS = "dataset.offline_packing_specs"
#: Dataset configs whose collate pads rows; all others but GPTSFTDatasetConfig are custom providers.
COLLATE_DATASETS = frozenset({"DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig"})
#: The last two are those of 0.3 to 0.5.
TEXT_DATASETS = frozenset({"GPTSFTDatasetConfig", "FinetuningDatasetConfig", "HFDatasetConfig"})
#: Multiple of a row's width where `pad_to_max_length` is off and nothing else is said.
#: Source: megatron/bridge/data/packing/gpt_sft.py, the collate's `pad_seq_length_to_mult`.
DEFAULT_WIDTH_MULTIPLE = 16


def _integer(path: str, *, default: int | None = None, instead: str = "") -> cached_property[int]:
    def read(run: Run) -> int:
        stated = run.integer_or_none(path) if instead else None
        return stated or run.integer(instead or path, default=default)

    return cached_property(read)


def _size(path: str) -> cached_property[int]:
    def read(run: Run) -> int:
        size = run.integer(path, default=1)
        if size < 1:
            raise CannotJudgeError(f"{path} is {size}")
        return size

    return cached_property(read)


@dataclass(frozen=True, kw_only=True)
class Run(Settings):
    """What a rule on a run sees: typed reads of its settings, and what follows from them.

    Reads and properties raise `CannotJudgeError` where they rest on something that is not stated or not given.

    Attributes:
        config: the settings.
        versions: of the host and its companions, that the run is judged for.
        world_size_given: number of GPUs, from outside the settings.
        artifact: facts about the packs, once their rows have been streamed; None where none was given.
        environment: the environment of the run; None where none was given.
        files: the file system; None where it is not to be looked at.
        waiting: how long ranks wait for each other, or why that is not known.
        balance_refused: why `build` refuses the balance that the recipe asks for; None where it does not.
    """

    versions: Versions
    world_size_given: int | None = None
    artifact: ArtifactFacts | None = None
    environment: Environment | None = None
    files: Files | None = None
    waiting: Waiting | str = NO_PACKS
    balance_refused: str | None = None

    @cached_property
    def loaded(self) -> RunConfig:
        """The settings as the host loads them, under the names of 0.6 whichever version they are of."""
        return with_host_defaults(in_current_names(self.config, self.versions))

    def require_artifact(self) -> ArtifactFacts:
        """Return the artifact's facts."""
        return given(self.artifact, NO_PACKS)

    def require_waiting(self) -> Waiting:
        """Return how long ranks wait for each other."""
        if isinstance(self.waiting, str):
            raise CannotJudgeError(self.waiting)
        return self.waiting

    def require_environment(self) -> Environment:
        """Return the environment."""
        return given(self.environment, NO_ENVIRONMENT)

    def require_files(self) -> Files:
        """Return the file system."""
        return given(self.files, "files were not looked at")

    @cached_property
    def packs_offline(self) -> bool:
        """Whether `enable_offline_packing` is on."""
        return bool(self.value("dataset.enable_offline_packing"))

    @cached_property
    def packs_in_batch(self) -> bool:
        """Whether `enable_in_batch_packing` is on."""
        return bool(self.stated("dataset.enable_in_batch_packing"))

    @cached_property
    def is_packed(self) -> bool:
        """Whether rows hold several sequences, one way or the other."""
        return self.packs_offline or self.packs_in_batch

    @cached_property
    def has_specs(self) -> bool:
        """Whether offline packing is on and described."""
        return self.packs_offline and self.value(SPECS) is not None

    @cached_property
    def dataset_kind(self) -> str:
        """Class of the dataset config, e.g. `GPTSFTDatasetConfig`."""
        return self.class_name("dataset") or "None"

    @cached_property
    def is_text(self) -> bool:
        """Whether the dataset is `GPTSFTDatasetConfig`, under its new name or its old one."""
        return self.dataset_kind in TEXT_DATASETS

    @cached_property
    def dataset_kwargs(self) -> Mapping[str, Any]:
        """`dataset.dataset_kwargs`, empty where there are none."""
        path = "dataset.dataset_kwargs"
        return self.mapping(path) if self._knows(path) else {}

    #: Runtime tokens that a pack can hold.
    packed_sequence_size = _integer(f"{SPECS}.packed_sequence_size")
    #: Multiple of every sequence's runtime length, as the settings state it.
    pad_seq_to_mult = _integer(f"{SPECS}.pad_seq_to_mult")
    #: `model.seq_length`, tokens.
    seq_length = _integer("model.seq_length")

    @cached_property
    def pads_to_max_length(self) -> bool:
        """Whether every row is as wide as a pack can be: the host looks for the literal True."""
        stated = (self.stated("dataset.pad_to_max_length"), self.dataset_kwargs.get("pad_to_max_length"))
        return any(value is True for value in stated)

    #: Ranks that share each layer's weights.
    tensor_model_parallel_size = _size("model.tensor_model_parallel_size")
    #: Pipeline stages.
    pipeline_model_parallel_size = _size("model.pipeline_model_parallel_size")
    #: Ranks that share each sequence.
    context_parallel_size = _size("model.context_parallel_size")

    @cached_property
    def eval_context_parallel_size(self) -> int | None:
        """Context parallelism of evaluation where it is set."""
        return self.integer_or_none("dist.eval_context_parallel_size")

    @cached_property
    def stated_context_parallel_sizes(self) -> tuple[int, ...]:
        """Context parallelism of training, then of evaluation where it differs; validate() counts both."""
        evaluation = self.eval_context_parallel_size
        return tuple(dict.fromkeys((self.context_parallel_size, evaluation or self.context_parallel_size)))

    @cached_property
    def context_parallel_sizes(self) -> tuple[int, ...]:
        """Context parallelism that rows meet: that of evaluation only where it evaluates, with groups of its own.

        Source: megatron/bridge/training/setup.py:472; no groups are made for evaluation without decentralized ones.
        """
        sizes = self.stated_context_parallel_sizes
        groups = "dist.use_decentralized_pg"
        may_have_groups = not self._knows(groups) or self.flag(groups)
        return sizes if len(sizes) > 1 and may_have_groups and self.evaluates else sizes[:1]

    #: Ranks that share the experts.
    expert_model_parallel_size = _size("model.expert_model_parallel_size")

    @cached_property
    def splits_sequence(self) -> bool:
        """Whether sequence parallelism acts: it is on and tensor parallelism is above 1."""
        return self.flag("model.sequence_parallel") and self.tensor_model_parallel_size > 1

    @cached_property
    def world_size(self) -> int:
        """Number of GPUs."""
        size = self.world_size_given or self.config.world_size
        return given(size, "the number of GPUs is not known; add --world-size N")

    @cached_property
    def model_parallel_size(self) -> int:
        """GPUs of one copy of the model, experts not counted."""
        return self.tensor_model_parallel_size * self.pipeline_model_parallel_size * self.context_parallel_size

    @cached_property
    def data_parallel_size(self) -> int:
        """Copies of the model; raises `CannotJudgeError` where the GPUs do not divide."""
        if self.world_size % self.model_parallel_size:
            raise CannotJudgeError(f"{self.world_size} GPUs are not a multiple of {self.model_parallel_size}")
        return self.world_size // self.model_parallel_size

    def require_plain_gpus(self) -> None:
        """Do nothing where all GPUs hold the language model.

        Source: megatron/bridge/training/config.py:1016, `dist_train`.
        """
        if self.is_on("model.dist_train.use_dist_train"):
            raise CannotJudgeError("model.dist_train gives the language model its own GPUs")
        if self.is_stated("model._target_") and "MIMO" in (self.class_name("model") or ""):
            raise CannotJudgeError("the parts of a MegatronMIMO model have parallelism of their own")

    @cached_property
    def needed_sequence_multiple(self) -> int:
        """What every sequence's runtime length must be a multiple of: 2 x context parallelism, of both sizes.

        Source: rule catalogue 4.1, HARD segment.
        """
        return _sequence_multiple(self.context_parallel_sizes)

    @cached_property
    def needed_width_multiple(self) -> int:
        """What every row's width must be a multiple of; sequence parallelism counts too.

        Source: rule catalogue 4.1, HARD width.
        """
        return self._width_multiple(self.context_parallel_sizes)

    @cached_property
    def stated_width_multiple(self) -> int:
        """The same for every stated size of context parallelism, as validate() has it for datasets with a collate."""
        return self._width_multiple(self.stated_context_parallel_sizes)

    @cached_property
    def recommended_pad_seq_to_mult(self) -> int:
        """The multiple that the host's documentation recommends, as `geometry.pad_seq_to_mult` has it."""
        return geometry.pad_seq_to_mult(
            context_parallel_size=self.context_parallel_size,
            tensor_model_parallel_size=self.tensor_model_parallel_size,
            sequence_parallel=self.splits_sequence,
            eval_context_parallel_size=self.eval_context_parallel_size,
        )

    @cached_property
    def width_multiple(self) -> int:
        """What every row's width is a multiple of where rows are not padded to the full size.

        Source: rule catalogue PSB112.
        """
        rounding = self.dataset_kwargs.get("pad_seq_length_to_mult", DEFAULT_WIDTH_MULTIPLE)
        if type(rounding) is not int or rounding < 1:
            raise CannotJudgeError(f"dataset.dataset_kwargs.pad_seq_length_to_mult is {rounding!r}")
        return self.pad_seq_to_mult if self.pad_seq_to_mult % rounding == 0 else rounding

    #: Rows per forward on one data-parallel rank.
    micro_batch_size = _integer("train.micro_batch_size")
    #: Rows per optimiser step.
    global_batch_size = _integer("train.global_batch_size")

    #: Rows per evaluation forward; that of training where it is not set.
    eval_micro_batch_size = _integer("validation.eval_micro_batch_size", instead="train.micro_batch_size")
    #: Rows per evaluation step; that of training where it is not set.
    eval_global_batch_size = _integer("validation.eval_global_batch_size", instead="train.global_batch_size")

    @cached_property
    def eval_iters(self) -> int | None:
        """Steps of one evaluation; what `train` states, the place of versions before 0.4, still wins.

        Source: megatron/bridge/training/config.py:1517.
        """
        given = self.stated_integer("train.eval_iters")
        return self.integer_or_none("validation.eval_iters") if given is None else given

    @cached_property
    def evaluates(self) -> bool:
        """Whether validation runs: the dataset has a split for it and there are iterations."""
        if not self.flag("dataset.do_validation"):
            return False
        stated = any(self.is_stated(f"{section}.eval_iters") for section in ("validation", "train"))
        return not stated or self.eval_iters != 0

    @cached_property
    def family(self) -> Family:
        """Family of the model; raises `CannotJudgeError` where nothing tells it."""
        return known(family_of(self.config), "the family of the model")

    def of_model(self, name: str) -> Any:
        """Return a setting of the model's architecture, `model.{name}`, None where it is not set.

        Settings that are not complete leave it to the checkpoint: then it is what the family has.
        """
        path = f"model.{name}"
        if self._knows(path):
            return self.value(path)
        name_of_family = self.family.name
        reason = f"{self.config.place} does not state {path}, nor does the family {name_of_family}"
        return given(ARCHITECTURES.get(name_of_family), reason).get(name)

    @cached_property
    def cp_comm_types(self) -> tuple[str, ...]:
        """How context-parallel ranks exchange keys and values, each kind once; `p2p` where it is not set."""
        kinds = self.of_model("cp_comm_type") or "p2p"
        return tuple(dict.fromkeys(map(str, kinds if isinstance(kinds, (list, tuple)) else (kinds,))))

    #: Width of the matrix products: `bf16`, `fp8`, `mxfp8` or `nvfp4`.
    number_format = cached_property(number_format_of)

    @cached_property
    def is_mixture_of_experts(self) -> bool:
        """Whether the model has experts."""
        return bool(self.integer_or_none("model.num_moe_experts"))

    #: Number of multi-token-prediction layers.
    num_mtp_layers = _integer("model.mtp_num_layers", default=0)

    def _width_multiple(self, sizes: tuple[int, ...]) -> int:
        tensor = self.tensor_model_parallel_size if self.splits_sequence else 1
        return math.lcm(_sequence_multiple(sizes), *(size * tensor if tensor > 1 else 1 for size in sizes))

    def _knows(self, path: str) -> bool:
        return self.config.is_whole_at(path) or self.is_stated(path)


#: For `when=`: the rule is about such runs only.
PACKS_OFFLINE, PACKS_IN_BATCH, IS_PACKED, HAS_SPECS, IS_TEXT = map(
    attrgetter, ("packs_offline", "packs_in_batch", "is_packed", "has_specs", "is_text")
)


def _sequence_multiple(sizes: tuple[int, ...]) -> int:
    return math.lcm(*(2 * size if size > 1 else 1 for size in sizes))
