"""A run as rules judge it: settings with the values that follow from them, and whatever else is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bridgepack import geometry
from bridgepack.records import Files, RunConfig
from bridgepack.rules.context import CannotJudgeError
from bridgepack.rules.earlier_names import in_current_names
from bridgepack.rules.families import Family, family_of
from bridgepack.rules.rule import ArtifactFacts
from bridgepack.rules.settings import Settings
from bridgepack.rules.versions import Versions

#: Where packs are described.
SPECS = "dataset.offline_packing_specs"
#: Dataset configs whose collate pads rows; all others but GPTSFTDatasetConfig are custom providers.
COLLATE_DATASETS = frozenset({"DirectHFSFTDatasetConfig", "EnergonDatasetConfig", "MockVLMSFTDatasetConfig"})
#: The last two are those of 0.3 to 0.5.
TEXT_DATASETS = frozenset({"GPTSFTDatasetConfig", "FinetuningDatasetConfig", "HFDatasetConfig"})
#: Multiple of a row's width where `pad_to_max_length` is off and nothing else is said.
#: Source: megatron/bridge/data/packing/gpt_sft.py, the collate's `pad_seq_length_to_mult`.
DEFAULT_WIDTH_MULTIPLE = 16


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment that a run will use.

    Attributes:
        versions: distribution, in lower case with dashes -> version.
        python: version of Python; None where it is not known.
        has_gpu: whether it was looked at on a machine with a GPU; None where it is not known.
        origin: where this comes from, in words.
    """

    versions: Mapping[str, str]
    origin: str
    python: str | None = None
    has_gpu: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RunSubject:
    """What a rule on a run sees. A property raises `CannotJudgeError` where it rests on something not stated.

    Attributes:
        config: the settings.
        versions: of the host and its companions, that the run is judged for.
        world_size_given: number of GPUs, from outside the settings.
        artifact: facts about the packs, once their rows have been streamed; None where none was given.
        environment: the environment of the run; None where none was given.
        files: the file system; None where it is not to be looked at.
    """

    config: RunConfig
    versions: Versions
    world_size_given: int | None = None
    artifact: ArtifactFacts | None = None
    environment: Environment | None = None
    files: Files | None = None

    @cached_property
    def settings(self) -> Settings:
        """Typed reads of the settings, under the names of 0.6 whichever version they are of."""
        return Settings(config=in_current_names(self.config, self.versions))

    def require_artifact(self) -> ArtifactFacts:
        """Return the artifact's facts, or raise `CannotJudgeError`."""
        if self.artifact is None:
            raise CannotJudgeError("no artifact was given; add --artifact FOLDER")
        return self.artifact

    def require_environment(self) -> Environment:
        """Return the environment, or raise `CannotJudgeError`."""
        if self.environment is None:
            raise CannotJudgeError("no environment was given; add --environment here, or a file of pip freeze")
        return self.environment

    def require_files(self) -> Files:
        """Return the file system, or raise `CannotJudgeError`."""
        if self.files is None:
            raise CannotJudgeError("files were not looked at")
        return self.files

    # --- packing ---------------------------------------------------------------------------------------------------

    @cached_property
    def packs_offline(self) -> bool:
        """Whether `enable_offline_packing` is on."""
        return bool(self.settings.value("dataset.enable_offline_packing"))

    @cached_property
    def packs_in_batch(self) -> bool:
        """Whether `enable_in_batch_packing` is on."""
        return self.settings.is_stated("dataset.enable_in_batch_packing") and bool(
            self.settings.value("dataset.enable_in_batch_packing")
        )

    @cached_property
    def is_packed(self) -> bool:
        """Whether rows hold several sequences, one way or the other."""
        return self.packs_offline or self.packs_in_batch

    @cached_property
    def has_specs(self) -> bool:
        """Whether offline packing is on and described."""
        return self.packs_offline and self.settings.value(SPECS) is not None

    @cached_property
    def dataset_kind(self) -> str:
        """Class of the dataset config, e.g. `GPTSFTDatasetConfig`."""
        return self.settings.class_name("dataset") or "None"

    @cached_property
    def dataset_kwargs(self) -> Mapping[str, Any]:
        """`dataset.dataset_kwargs`, empty where there are none."""
        return (
            self.settings.mapping("dataset.dataset_kwargs")
            if self.settings.is_stated("dataset.dataset_kwargs") or self.config.is_complete
            else {}
        )

    @cached_property
    def packed_sequence_size(self) -> int:
        """Runtime tokens that a pack can hold."""
        return self.settings.integer(f"{SPECS}.packed_sequence_size")

    @cached_property
    def pad_seq_to_mult(self) -> int:
        """Multiple of every sequence's runtime length, as the settings state it."""
        return self.settings.integer(f"{SPECS}.pad_seq_to_mult")

    @cached_property
    def seq_length(self) -> int:
        """`model.seq_length`, tokens."""
        return self.settings.integer("model.seq_length")

    @cached_property
    def pads_to_max_length(self) -> bool:
        """Whether every row is as wide as a pack can be: the host looks for the literal True."""
        kwargs = self.dataset_kwargs.get("pad_to_max_length") is True
        return kwargs or (
            self.settings.is_stated("dataset.pad_to_max_length")
            and self.settings.value("dataset.pad_to_max_length") is True
        )

    # --- topology --------------------------------------------------------------------------------------------------

    @cached_property
    def tensor_model_parallel_size(self) -> int:
        """Ranks that share each layer's weights."""
        return self._size("model.tensor_model_parallel_size")

    @cached_property
    def pipeline_model_parallel_size(self) -> int:
        """Pipeline stages."""
        return self._size("model.pipeline_model_parallel_size")

    @cached_property
    def context_parallel_size(self) -> int:
        """Ranks that share each sequence."""
        return self._size("model.context_parallel_size")

    @cached_property
    def eval_context_parallel_size(self) -> int | None:
        """Context parallelism of evaluation where it is set."""
        return self.settings.integer_or_none("dist.eval_context_parallel_size")

    @cached_property
    def context_parallel_sizes(self) -> tuple[int, ...]:
        """Context parallelism of training, then of evaluation where it differs."""
        evaluation = self.eval_context_parallel_size
        return tuple(dict.fromkeys((self.context_parallel_size, evaluation or self.context_parallel_size)))

    @cached_property
    def expert_model_parallel_size(self) -> int:
        """Ranks that share the experts."""
        return self._size("model.expert_model_parallel_size")

    @cached_property
    def splits_sequence(self) -> bool:
        """Whether sequence parallelism acts: it is on and tensor parallelism is above 1."""
        return self.settings.flag("model.sequence_parallel") and self.tensor_model_parallel_size > 1

    @cached_property
    def world_size(self) -> int:
        """Number of GPUs."""
        size = self.world_size_given or self.config.world_size
        if size is None:
            raise CannotJudgeError("the number of GPUs is not known; add --world-size N")
        return size

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

    @cached_property
    def needed_sequence_multiple(self) -> int:
        """What every sequence's runtime length must be a multiple of: 2 x context parallelism, of both sizes.

        Source: rule catalogue 4.1, HARD segment.
        """
        return math.lcm(*(2 * size if size > 1 else 1 for size in self.context_parallel_sizes))

    @cached_property
    def needed_width_multiple(self) -> int:
        """What every row's width must be a multiple of; sequence parallelism counts too.

        Source: rule catalogue 4.1, HARD width.
        """
        tensor = self.tensor_model_parallel_size
        per_rank = (size * tensor if self.splits_sequence else 1 for size in self.context_parallel_sizes)
        return math.lcm(self.needed_sequence_multiple, *per_rank)

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
        multiple = self.pad_seq_to_mult
        return multiple if multiple % rounding == 0 else rounding

    # --- batches ---------------------------------------------------------------------------------------------------

    @cached_property
    def micro_batch_size(self) -> int:
        """Rows per forward on one data-parallel rank."""
        return self.settings.integer("train.micro_batch_size")

    @cached_property
    def global_batch_size(self) -> int:
        """Rows per optimiser step."""
        return self.settings.integer("train.global_batch_size")

    @cached_property
    def eval_micro_batch_size(self) -> int:
        """Rows per evaluation forward; that of training where it is not set."""
        return self.settings.integer_or_none("validation.eval_micro_batch_size") or self.micro_batch_size

    @cached_property
    def eval_global_batch_size(self) -> int:
        """Rows per evaluation step; that of training where it is not set."""
        return self.settings.integer_or_none("validation.eval_global_batch_size") or self.global_batch_size

    @cached_property
    def evaluates(self) -> bool:
        """Whether validation runs: the dataset has a split for it and there are iterations."""
        if not self.settings.flag("dataset.do_validation"):
            return False
        if not self.settings.is_stated("validation.eval_iters"):
            return True
        return bool(self.settings.value("validation.eval_iters") != 0)

    # --- model -----------------------------------------------------------------------------------------------------

    @cached_property
    def family(self) -> Family:
        """Family of the model; raises `CannotJudgeError` where nothing tells it."""
        family = family_of(self.config)
        if family is None:
            raise CannotJudgeError("the family of the model is not known")
        return family

    @cached_property
    def cp_comm_types(self) -> tuple[str, ...]:
        """How context-parallel ranks exchange keys and values, each kind once; `p2p` where it is not set."""
        return tuple(dict.fromkeys(str(kind) for kind in self.settings.items("model.cp_comm_type"))) or ("p2p",)

    @cached_property
    def number_format(self) -> str:
        """Width of the matrix products: `bf16`, `fp8`, `mxfp8` or `nvfp4`.

        Read from `model.fp8`, `model.fp8_recipe`, `model.fp4` and from `mixed_precision`, which is the name of a recipe
        before the host resolves it and a config afterwards.
        """
        name = self.settings.value("mixed_precision") if self._knows("mixed_precision") else None
        if isinstance(name, Mapping):
            parts = [name.get("fp8"), name.get("fp8_recipe") if name.get("fp8") else None]
            parts.append("nvfp4" if name.get("fp4") else None)
            name = " ".join(str(part) for part in parts if part)
        if self._knows("model.fp8") and self.settings.value("model.fp8"):
            name = f"{name} fp8 {self.settings.value('model.fp8_recipe')}"
        if self._knows("model.fp4") and self.settings.value("model.fp4"):
            name = f"{name} nvfp4"
        text = str(name or "").lower()
        kinds = {"nvfp4": "nvfp4", "mxfp8": "mxfp8", "fp8": "fp8", "e4m3": "fp8", "hybrid": "fp8"}
        return next((kind for word, kind in kinds.items() if word in text), "bf16")

    @cached_property
    def is_mixture_of_experts(self) -> bool:
        """Whether the model has experts."""
        return bool(self.settings.integer_or_none("model.num_moe_experts"))

    @cached_property
    def num_mtp_layers(self) -> int:
        """Number of multi-token-prediction layers."""
        return self.settings.integer("model.mtp_num_layers", default=0)

    def _size(self, path: str) -> int:
        size = self.settings.integer(path, default=1)
        if size < 1:
            raise CannotJudgeError(f"{path} is {size}")
        return size

    def _knows(self, path: str) -> bool:
        return self.config.is_complete or self.settings.is_stated(path)
