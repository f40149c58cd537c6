"""The recipe of an artifact, and the traced run: its settings and its order of packs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bridgepack.bridge.replay_settings import evaluation_schedule, replay_settings, stated_world_size
from bridgepack.bridge.targets import load_target
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ConfigError
from bridgepack.records import TRAIN, RunConfig
from bridgepack.releases import BRIDGE, TARGET
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings

#: Settings for the location of sources, which do not affect rows.
_PLACES = (
    "data.train",
    "data.validation",
    "tokenizer.name_or_path",
    "tokenizer.revision",
    "tokenizer.chat_template",
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that choose a run."""

    #: a recipe or a config of Megatron-Bridge, or its location; None for the artifact's own recipe
    recipe: Any = None
    overrides: Mapping[str, Any] = field(default_factory=dict)  #: dotted path -> new value
    world_size: int | None = None  #: processes of the run; None for the recipe's
    context: int | None = None  #: context-parallel ranks; None for the recipe's
    bridge_version: str = TARGET[BRIDGE]
    resume_step: int = 0  #: steps that the loaded checkpoint had done


class TracedRun:
    """A run over an artifact's packs."""

    def __init__(self, artifact: Artifact, options: RunOptions) -> None:
        """Load the settings.

        Raises:
            ConfigError: the recipe cannot be loaded, or a change to it is invalid.
        """
        self.artifact = artifact
        self.options = options
        self.source = _source(artifact, options)
        self._num_packs = {split.name: split.statistics.num_packs for split in artifact.manifest.splits}

    @property
    def has_world_size(self) -> bool:
        """Whether the number of the run's processes is known."""
        return self.options.world_size is not None or stated_world_size(self.source) is not None

    def order(self, split: str) -> PackOrder:
        """Return the order of a split's packs.

        Raises:
            ConfigError: a setting is missing, or the host cannot run with it.
        """
        return PackOrder(self._settings(split))

    @cached_property
    def schedule(self) -> EvaluationSchedule:
        """Schedule of the run's evaluations."""
        version = self.options.bridge_version
        return evaluation_schedule(self.source, num_packs=self._num_packs, version=version)

    def context_parallel_size(self, split: str) -> int:
        """Return the number of ranks that share each sequence of a split.

        Raises:
            ConfigError: see `order`, if the number of processes matters.
        """
        if self.options.context is not None:
            return self.options.context
        if self.has_world_size:
            return self._settings(split).topology.context_parallel_size
        source = self.source
        return source.parallelism.context_parallel_size if isinstance(source, SFTRecipe) else 1

    def _settings(self, split: str) -> ReplaySettings:
        if not self.has_world_size:
            raise ConfigError(
                "--world-size is not given, and the recipe has no parallelism.num_gpus; which rank reads which pack "
                "follows from the number of GPUs. Give one of them."
            )
        settings = replay_settings(
            self._with_context(),
            num_packs=self._num_packs,
            world_size=self.options.world_size,
            version=self.options.bridge_version,
            split=split,
            resume_step=self.options.resume_step,
        )
        context = self.options.context
        if context is None or split != TRAIN:
            return settings
        return replace(settings, topology=replace(settings.topology, context_parallel_size=context))

    def _with_context(self) -> SFTRecipe | RunConfig:
        """Return the settings with `--context` and the sizes that depend on it."""
        if self.options.context is None or not isinstance(self.source, SFTRecipe):
            return self.source
        return self.source.override({"parallelism.context_parallel_size": self.options.context})


def _source(artifact: Artifact, options: RunOptions) -> SFTRecipe | RunConfig:
    if options.recipe is None:
        return load_recipe(artifact.manifest.recipe, options.overrides)
    target = load_target(options.recipe, options.overrides, artifact=artifact.folder)
    if target.recipe is not None:
        return target.recipe
    if target.config is None:
        raise ConfigError(
            f"--recipe is {str(options.recipe)!r}, an artifact; allowed: a recipe, or a config of Megatron-Bridge. "
            "Without --recipe, the artifact's own recipe is used."
        )
    return target.config


def recorded_recipe(artifact: Artifact, overrides: Mapping[str, Any]) -> SFTRecipe:
    """Return the manifest's recipe with the present location of its sources.

    Raises:
        ConfigError: an override changes anything else.
    """
    for path in overrides:
        if path not in _PLACES:
            raise ConfigError(
                f"--set {path}; allowed: {', '.join(_PLACES)}. An artifact is verified with the recipe that it was "
                "built with; only the location of its sources may change."
            )
    return load_recipe(artifact.manifest.recipe, overrides)
