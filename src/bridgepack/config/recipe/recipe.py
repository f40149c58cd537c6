"""SFTRecipe, its derived values, and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from bridgepack import geometry
from bridgepack.config.document import Document, stated_values
from bridgepack.config.installed import installed_version
from bridgepack.config.recipe.data import DataConfig, TokenizerConfig, sets_amount, source_entries
from bridgepack.config.recipe.pack_paths import refuse_part_of_packs
from bridgepack.config.recipe.packing import BatchConfig, PackingConfig, ParallelismConfig
from bridgepack.config.recipe.preprocessing import (
    ChatPreprocessing,
    Preprocessing,
    mended_by_host,
    trims_thought_openings,
)
from bridgepack.config.recipe.quantities import Replaced, refuse_two_settings, with_changes
from bridgepack.config.recipe.readings import Reading, check_layouts, kind_of, written_layouts
from bridgepack.config.recipe.resolved import Derived, ResolvedRecipe
from bridgepack.config.recipe.serving import ServingConfig
from bridgepack.config.recipe.training import (
    CheckpointConfig,
    CudaGraphConfig,
    FullMethod,
    GuardConfig,
    LoggingConfig,
    LossesConfig,
    Method,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    ScheduleConfig,
)
from bridgepack.errors import ConfigError
from bridgepack.host import TARGET, HostRelease, release_for, release_of
from bridgepack.records import SPLITS, BalanceRecord


class SFTRecipe(Document):
    """All settings of a packed SFT run; frozen. Use `override` to get a changed copy."""

    WHAT = "recipe"
    OPTION = "--set"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)
    """Name of the recipe; letters, digits, `.`, `_` and `-`. It is part of the default output folder."""
    data: DataConfig
    """Inputs."""
    tokenizer: TokenizerConfig
    """Tokenizer and chat template."""
    preprocessing: Preprocessing = ChatPreprocessing()
    """How an example becomes tokens and a loss mask."""
    serving: ServingConfig = ServingConfig()
    """What the server of the trained model sets; only comparisons with it depend on this."""
    packing: PackingConfig
    """How sequences are packed."""
    parallelism: ParallelismConfig = ParallelismConfig()
    """Parallel topology that the packs are aligned for."""
    batch: BatchConfig = BatchConfig()
    """Batch sizes."""
    artifact: Annotated[str, Field(min_length=1)] | None = None
    """Folder of the packs: `build` writes them there and the run reads them."""
    bridge_version: str | None = None
    """Version of Megatron-Bridge that the run uses, e.g. `0.7`; null for the installed one, or 0.6 where none is. Rows
    depend on it only where `preprocessing` says `keep`; null is then 0.6."""
    model: ModelConfig | None = None
    """Model to train; a build needs none."""
    method: Method = FullMethod()
    """What is trained: all weights, or adapters."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Length of the run and learning rate."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser."""
    precision: PrecisionConfig = PrecisionConfig()
    """Number formats."""
    cuda_graphs: CudaGraphConfig = CudaGraphConfig()
    """CUDA graphs."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    logging: LoggingConfig = LoggingConfig()
    """Logs and experiment trackers."""
    guard: GuardConfig = GuardConfig()
    """Checks during training."""
    losses: LossesConfig = LossesConfig()
    """Losses by source during training."""
    environment: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Environment variables of the run, e.g. `{NCCL_DEBUG: WARN}`."""
    bridge_overrides: dict[str, Any] = Field(default_factory=dict)
    """ConfigContainer settings without a recipe field, under Megatron-Bridge's names, e.g. `{model: {cp_comm_type:
    a2a}, train: {train_iters: 500}}`. `check` checks them; builds do not depend on them."""
    ignore: dict[str, str] = Field(default_factory=dict, max_length=1_000)
    """Rule to ignore -> the reason, e.g. `{BP014: "compared with an old run"}`. Unknown codes, and codes without a
    finding, are reported."""

    _replacements: tuple[Replaced, ...] = PrivateAttr(default=())

    @field_validator("bridge_version")
    @classmethod
    def _check_version(cls, text: str | None) -> str | None:
        if text is not None:
            release_of(text, place="bridge_version")
        return text

    @property
    def release(self) -> HostRelease:
        """The release of Megatron-Bridge that the recipe is for."""
        return release_for(self.bridge_version or installed_version())

    def for_installed_host(self) -> Self:
        """Return the recipe, for the installed release where it names none and rows depend on it.

        Rows depend on the release where a field is `keep`; then the recipe says the release, so that they stay what
        they are on another machine.
        """
        settings = self.chat_preprocessing
        if self.bridge_version is not None or settings is None:
            return self
        is_same = mended_by_host(settings, self.release) == self.host_habits
        return self if is_same else self.override({"bridge_version": self.release.name})

    @property
    def host_habits(self) -> dict[str, str]:
        """Field of preprocessing that is `keep` -> its other value that does what the recipe's release does.

        Rows must not depend on what is installed, so without `bridge_version` it is what the target does.
        """
        settings = self.chat_preprocessing
        return {} if settings is None else mended_by_host(settings, self._release_of_rows)

    @property
    def trims_thought_openings(self) -> bool:
        """Whether rows are trained without the openings of thoughts that the recipe's release leaves out."""
        settings = self.chat_preprocessing
        return settings is not None and trims_thought_openings(settings, self._release_of_rows)

    @property
    def _release_of_rows(self) -> HostRelease:
        return TARGET if self.bridge_version is None else self.release

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the sources' rows, each once, the recipe's own first."""
        kinds = dict.fromkeys(kind for split in SPLITS for kind in self.kinds_of_sources(split))
        return tuple(sorted(kinds, key=lambda kind: kind != self.preprocessing.kind))

    def kinds_of_sources(self, split: str) -> tuple[str, ...]:
        """Return the kind of the rows of each source of `training` or `validation` that holds rows, in order."""
        return tuple(kind_of(self.preprocessing, self.data, source) for source in self.data.sources_of(split))

    @property
    def detects_layouts(self) -> bool:
        """Whether a source has no layout, so that it is detected from its rows."""
        return any(not written_layouts(self.data, source) for source in self.data.all_sources)

    @property
    def chat_preprocessing(self) -> ChatPreprocessing | None:
        """The settings for conversations; None if the recipe has none."""
        if self.preprocessing.kind != "chat" and "chat" not in self.kinds:
            return None
        settings = self.preprocessing.of_kind("chat")
        assert isinstance(settings, ChatPreprocessing)
        return settings

    @property
    def applied_preprocessing(self) -> Preprocessing:
        """The preprocessing as rows get it, `keep` in the way of the recipe's release."""
        habits, settings = self.host_habits, self.preprocessing
        if not habits or settings.kind == "chat":
            return settings.model_copy(update=habits) if habits else settings
        other_sections = [
            section.model_copy(update=habits) if section.kind == "chat" else section for section in settings.others
        ]
        return settings.model_copy(update={"others": tuple(other_sections)})

    @property
    def splits_conversations(self) -> bool:
        """True if a conversation may become several sequences."""
        return getattr(self.chat_preprocessing, "split_conversations", "never") != "never"

    @property
    def mixes_sources(self) -> bool:
        """True if a source sets how much of it is used."""
        return any(map(sets_amount, (*source_entries(self.data.train), *source_entries(self.data.validation))))

    @property
    def chooses_rows(self) -> bool:
        """True if the choice of rows depends on all rows together."""
        return self.mixes_sources or self.data.deduplicate != "none"

    @property
    def fields_on_auto(self) -> tuple[str, ...]:
        """Fields of preprocessing whose form is decided for the chat template; none where the host reads the data."""
        settings = self.chat_preprocessing
        return () if settings is None or self.packing.mode != "offline" else settings.fields_on_auto

    @model_validator(mode="after")
    def _check_sources_fit_preprocessing(self) -> Self:
        check_layouts(self.preprocessing, self.data)
        return self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the recipe that plain values describe.

        Raises:
            ConfigError: naming every wrong field, its value, what is allowed and what to do.
        """
        return checked_object(super().from_mapping(values))  # defined here: nemo-run names a method by module and class

    @property
    def replacements(self) -> tuple[Replaced, ...]:
        """The settings in whose place overrides stand."""
        return self._replacements

    def _with_changes(self, values: dict[str, Any], changes: Mapping[str, Any]) -> Self:
        recipe, replacements = with_changes(values, changes, self.release, self.from_values)
        refuse_part_of_packs(stated_values(recipe), self.release)
        recipe._replacements = (*self._replacements, *replacements)
        return recipe

    def to_bridge(self, artifact: str | Path | None = None) -> Any:
        """Return the ConfigContainer of the installed Megatron-Bridge, ready for `finetune(config, forward_step)`.

        Args:
            artifact: folder of the packs; by default the recipe's own, else `artifacts/NAME`.

        Raises:
            ConfigError: the model cannot be loaded here, or Megatron-Bridge has no such setting.
        """
        from bridgepack.bridge.writing.write import to_bridge  # a layer above: called only here

        return to_bridge(self, artifact=artifact)

    @classmethod
    def from_bridge(cls, config: Any, **fields: Any) -> SFTRecipe:
        """Return the recipe equivalent to a ConfigContainer; the config is not changed.

        Args:
            config: a ConfigContainer.
            fields: `name`, and sections that the config lacks, e.g. `data={"train": "train.jsonl"}`.

        Raises:
            ConfigError: the config trains something that a recipe cannot express.
        """
        from bridgepack.bridge.adopting.adopt import from_bridge  # a layer above

        return from_bridge(config, **fields)

    def resolve(
        self,
        balance: BalanceRecord | None = None,
        readings: Mapping[str, tuple[Reading | None, ...]] = MappingProxyType({}),
    ) -> ResolvedRecipe:
        """Return the recipe with every derived value and the reason for each; pure.

        Args:
            balance: from `planning.balance.balance_for`.
            readings: from `data.layouts.detection.readings_of`; without it, no layout is detected.

        Raises:
            ConfigError: the pack size or the maximum sequence length does not fit `pad_seq_to_mult`.
        """
        multiple = self._derived_multiple()
        size = self.packing.packed_sequence_size
        if size % multiple.value:
            lower = geometry.floor_to_multiple(size, multiple.value)
            upper = geometry.ceil_to_multiple(size, multiple.value)
            raise ConfigError(
                f"packing.packed_sequence_size is {size}; allowed: multiples of pad_seq_to_mult, {multiple.value} "
                f"({multiple.because}). Set it to {f'{lower} or {upper}' if lower else upper}.",
                field="packing.packed_sequence_size",
            )
        field = "packing.max_sequence_length" if self.packing.max_sequence_length else "packing.packed_sequence_size"
        longest = self.packing.max_sequence_length or size
        max_length = geometry.floor_to_multiple(longest, multiple.value)
        if max_length == 0:
            raise ConfigError(
                f"{field} is {longest}; allowed: at least pad_seq_to_mult, {multiple.value} "
                f"({multiple.because}). Raise it or lower the parallelism.",
                field=field,
            )
        because = f"{field} {longest} rounded down to a multiple of {multiple.value}"
        return ResolvedRecipe(
            recipe=self,
            pad_seq_to_mult=multiple,
            max_sequence_length=Derived(value=max_length, because=because),
            balance=balance,
            readings=readings,
        )

    def _derived_multiple(self) -> Derived:
        topology = self.parallelism
        divisor = topology.multiple
        evaluation = topology.eval_context_parallel_size
        terms = (
            f"context_parallel_size {topology.context_parallel_size}"
            f"{f', eval_context_parallel_size {evaluation}' if evaluation else ''}, tensor_model_parallel_size "
            f"{topology.tensor_model_parallel_size}, sequence_parallel {str(topology.sequence_parallel).lower()}"
        )
        multiple = self.packing.pad_seq_to_mult
        if multiple is None:
            return Derived(value=divisor, because=f"lcm over {terms}")
        if multiple % divisor:
            nearest = geometry.ceil_to_multiple(multiple, divisor)
            raise ConfigError(
                f"packing.pad_seq_to_mult is {multiple}; allowed: multiples of {divisor} (lcm over {terms}). "
                f"Remove it, or set it to {nearest}.",
                field="packing.pad_seq_to_mult",
            )
        return Derived(value=multiple, because="packing.pad_seq_to_mult is set in the recipe")


def checked_object[R: SFTRecipe](recipe: R) -> R:
    """Return a recipe unless its author wrote two settings of one quantity, or a part of where its packs are.

    Raises:
        ConfigError: naming the settings.
    """
    values = stated_values(recipe)
    refuse_two_settings(values, recipe.release)
    refuse_part_of_packs(values, recipe.release)
    return recipe
