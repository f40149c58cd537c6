"""SFTRecipe, what it resolves to, and how it is overridden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from bridgepack import geometry
from bridgepack.config.document import Document
from bridgepack.config.recipe.data import DataConfig, TokenizerConfig
from bridgepack.config.recipe.packing import BatchConfig, PackingConfig, ParallelismConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, Preprocessing
from bridgepack.config.recipe.sources import as_sources, label_of, listed, sets_amount
from bridgepack.config.recipe.training import (
    CheckpointConfig,
    CudaGraphConfig,
    FullMethod,
    GuardConfig,
    LoggingConfig,
    Method,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    ScheduleConfig,
)
from bridgepack.errors import ConfigError
from bridgepack.records import BalanceRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """A value that `resolve` worked out."""

    value: int  #: in the unit of the field it stands for
    because: str  #: how it was derived, with the numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedRecipe:
    """A recipe with every derived value."""

    recipe: SFTRecipe  #: as written
    pad_seq_to_mult: Derived  #: multiple of every runtime length
    max_sequence_length: Derived  #: longest runtime length of a sequence that is kept whole; a multiple of the above
    balance: BalanceRecord | None = None  #: what the order of packs is balanced for; None where it is not

    def explain(self) -> dict[str, dict[str, Any]]:
        """Return every derived value with its reason, for printing and for the manifest."""
        fields = {"pad_seq_to_mult": self.pad_seq_to_mult, "max_sequence_length": self.max_sequence_length}
        values = {name: {"value": item.value, "because": item.because} for name, item in fields.items()}
        if self.balance is None:
            return values
        because = f"packing.balance.kind is {self.balance.kind}"
        return values | {"balance": {"value": asdict(self.balance), "because": because}}


class SFTRecipe(Document):
    """Everything a packed SFT run is made of; frozen. Change it with `override`, never in place."""

    WHAT = "recipe"
    OPTION = "--set"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)
    """Name of the recipe; letters, digits, `.`, `_` and `-`. The default output folder carries it."""
    data: DataConfig
    """Inputs."""
    tokenizer: TokenizerConfig
    """Tokenizer and chat template."""
    preprocessing: Preprocessing = ChatPreprocessing()
    """How an example becomes tokens and a loss mask."""
    packing: PackingConfig
    """How sequences are laid into packs."""
    parallelism: ParallelismConfig = ParallelismConfig()
    """Topology the packs are aligned for."""
    batch: BatchConfig = BatchConfig()
    """Batch sizes."""
    artifact: Annotated[str, Field(min_length=1)] | None = None
    """Folder of the packs: where `build` writes them and the run reads them."""
    model: ModelConfig | None = None
    """Model to train; a build needs none."""
    method: Method = FullMethod()
    """What is trained: every weight, or adapters."""
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
    """What looks on while the run trains."""
    environment: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Environment variables of the run, e.g. `{NCCL_DEBUG: WARN}`."""
    bridge_overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings of the ConfigContainer that have no field of their own here, under the host's names, e.g.
    `{model: {cp_comm_type: a2a}, train: {train_iters: 500}}`. `check` judges them; no build depends on them."""
    ignore: dict[str, str] = Field(default_factory=dict)
    """Rules whose findings do not matter -> the reason, e.g. `{BP014: "compared with an old run"}`. A code that is
    not known, and one that nothing is found for, are reported."""

    @property
    def mixes_sources(self) -> bool:
        """Whether a source says how much of it is used."""
        return any(map(sets_amount, (*listed(self.data.train), *listed(self.data.validation))))

    @property
    def chooses_rows(self) -> bool:
        """Whether all rows together decide which of them are used."""
        return self.mixes_sources or self.data.deduplicate != "none"

    @model_validator(mode="after")
    def _check_sources_fit_preprocessing(self) -> Self:
        kind, known = self.preprocessing.kind, self.preprocessing.columns_read
        if self.preprocessing.over_long == "split" and self.mixes_sources:
            raise ValueError(
                "preprocessing.over_long is split, and a source of data sets max_rows, epochs or weight; allowed with "
                "these: drop, truncate, error. Use one of them: pieces of a row are no rows that could be counted."
            )
        for split in ("train", "validation"):
            for source in as_sources(getattr(self.data, split)):
                unknown = [name for name in getattr(source, "columns", ()) if name not in known]
                if unknown:
                    raise ValueError(
                        f"data.{split}: columns of {label_of(source)} names {', '.join(unknown)}; preprocessing.kind "
                        f"{kind} reads: {', '.join(known)}. Name one of these."
                    )
                wanted = getattr(source, "kind", None)
                if wanted is not None and wanted != kind and kind != "chat":
                    raise ValueError(
                        f"data.{split}: kind of {label_of(source)} is {wanted}; preprocessing.kind {kind} reads no "
                        "others. Remove it, or set preprocessing.kind to chat."
                    )
        return self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the recipe that plain values describe.

        Raises:
            ConfigError: naming every wrong field, its value, what is allowed and what to do.
        """
        return super().from_mapping(values)  # defined here: nemo-run writes down a method by its module and class

    def to_bridge(self, artifact: str | Path | None = None) -> Any:
        """Return the ConfigContainer of the installed Megatron-Bridge, ready for `finetune(config, forward_step)`.

        Args:
            artifact: folder of the packs; by default the recipe's own, else `artifacts/NAME`.

        Raises:
            ConfigError: the model cannot be loaded here, or a setting is nothing that the host has.
        """
        from bridgepack.bridge.writing.write import to_bridge  # a layer above: this is a recipe's door to the host

        return to_bridge(self, artifact=artifact)

    @classmethod
    def from_bridge(cls, config: Any, **fields: Any) -> SFTRecipe:
        """Return the recipe that a ConfigContainer amounts to; the config is only read.

        Args:
            config: a ConfigContainer.
            fields: `name`, and sections that the config does not tell, e.g. `data={"train": "train.jsonl"}`.

        Raises:
            ConfigError: the config trains something that no recipe can say.
        """
        from bridgepack.bridge.adopting.adopt import from_bridge  # a layer above: a recipe's door from the host

        return from_bridge(config, **fields)

    def resolve(self, balance: BalanceRecord | None = None) -> ResolvedRecipe:
        """Return the recipe with every derived value and the reason for each; pure.

        Args:
            balance: what the order of packs is balanced for, of `planning.balance.balance_for`.

        Raises:
            ConfigError: when a pack or a sequence cannot be a whole number of multiples.
        """
        multiple = self._derived_multiple()
        size = self.packing.packed_sequence_size
        if size % multiple.value:
            lower = geometry.floor_to_multiple(size, multiple.value)
            upper = geometry.ceil_to_multiple(size, multiple.value)
            raise ConfigError(
                f"packing.packed_sequence_size is {size}; allowed: multiples of pad_seq_to_mult, {multiple.value} "
                f"({multiple.because}). Set it to {f'{lower} or {upper}' if lower else upper}."
            )
        field = "packing.max_sequence_length" if self.packing.max_sequence_length else "packing.packed_sequence_size"
        longest = self.packing.max_sequence_length or size
        whole = geometry.floor_to_multiple(longest, multiple.value)
        if whole == 0:
            raise ConfigError(
                f"{field} is {longest}; allowed: at least pad_seq_to_mult, {multiple.value} "
                f"({multiple.because}). Raise it or lower the parallelism."
            )
        because = f"{field} {longest} rounded down to a multiple of {multiple.value}"
        return ResolvedRecipe(
            recipe=self,
            pad_seq_to_mult=multiple,
            max_sequence_length=Derived(value=whole, because=because),
            balance=balance,
        )

    def _derived_multiple(self) -> Derived:
        topology = self.parallelism
        needed = topology.multiple
        evaluation = topology.eval_context_parallel_size
        terms = (
            f"context_parallel_size {topology.context_parallel_size}"
            f"{f', eval_context_parallel_size {evaluation}' if evaluation else ''}, "
            f"tensor_model_parallel_size {topology.tensor_model_parallel_size}, "
            f"sequence_parallel {str(topology.sequence_parallel).lower()}"
        )
        pinned = self.packing.pad_seq_to_mult
        if pinned is None:
            return Derived(value=needed, because=f"lcm over {terms}")
        if pinned % needed:
            nearest = geometry.ceil_to_multiple(pinned, needed)
            raise ConfigError(
                f"packing.pad_seq_to_mult is {pinned}; allowed: multiples of {needed} (lcm over {terms}). "
                f"Remove it, or set it to {nearest}."
            )
        return Derived(value=pinned, because="packing.pad_seq_to_mult is set in the recipe")
