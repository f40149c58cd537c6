"""The packs of an artifact, read where they are needed, its recipe, and a run over them."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.replay_settings import evaluation_schedule, replay_settings, stated_world_size
from bridgepack.bridge.targets import load_target
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.shards.row_groups import read_shard_rows
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.host import TARGET, HostRelease, release_of
from bridgepack.records import TRAIN, PackedRow, RunConfig
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings


class ShardRow(NamedTuple):
    """A pack's location on disk: the shard's name, and the row in it, from 0."""

    shard: str
    row: int


class ShardIndex:
    """Locations of packs in a split's shards, which the host concatenates in the order of their names.

    Source: megatron-bridge 0.6.2, data/packing/paths.py (_resolve_parquet_paths), data/packing/parquet.py
    (_locate_row). All shards of a split are in one folder.
    """

    def __init__(self, num_rows: Mapping[str, int]) -> None:
        """Take the shards as name -> number of rows; ignores empty shards."""
        self.shards = tuple(sorted(num_rows))
        self._offsets = [0, *accumulate(num_rows[name] for name in self.shards)]

    @property
    def num_packs(self) -> int:
        """Number of rows in all shards."""
        return self._offsets[-1]

    def place_of(self, pack: int) -> ShardRow:
        """Return the location of a pack: shards of 3 and 2 rows -> pack 4 is row 1 of the second.

        Raises:
            ConfigError: the pack does not exist.
        """
        if not 0 <= pack < self.num_packs:
            raise ConfigError(f"pack is {pack}; allowed: 0 to {self.num_packs - 1}.")
        shard = bisect_right(self._offsets, pack) - 1
        return ShardRow(self.shards[shard], pack - self._offsets[shard])


def opened_artifact(folder: Path, *, may_be_changed: bool = False) -> Artifact:
    """Return an artifact whose manifest has what proofs need; `may_be_changed` also accepts changed files.

    Raises:
        ArtifactError: it has no manifest, like packs of other tools; the manifest lacks the tokenizer; or it changed.
    """
    artifact = Artifact(folder, may_be_changed=may_be_changed)
    tokenizer = artifact.manifest.tokenizer
    if type(tokenizer.get("eos_token_id")) is not int or not isinstance(tokenizer.get("name_or_path"), str):
        raise ArtifactError(
            f"{folder / MANIFEST_FILE}: tokenizer has no name_or_path or no eos_token_id. Build the artifact again."
        )
    return artifact


def shard_index(artifact: Artifact, split: str) -> ShardIndex:
    """Return the index of a split's packs over its shards; raises ArtifactError if the split does not exist."""
    return ShardIndex({shard.path: shard.num_rows for shard in artifact.split(split).shards})


def read_packs(artifact: Artifact, split: str, packs: Iterable[int]) -> dict[int, PackedRow]:
    """Return some packs of a split; reads only the row groups that contain them.

    Raises:
        ArtifactError: the split does not exist, or a shard cannot be read.
        ConfigError: the pack does not exist.
    """
    index, shards = shard_index(artifact, split), {shard.path: shard for shard in artifact.split(split).shards}
    places = sorted((index.place_of(pack), pack) for pack in set(packs))
    rows_by_pack: dict[int, PackedRow] = {}
    for name, members in groupby(places, key=lambda item: item[0].shard):
        packs_of = {place.row: pack for place, pack in members}
        rows = read_shard_rows(artifact.path_of(shards[name]), name, packs_of)
        rows_by_pack |= {pack: rows[row] for row, pack in packs_of.items()}
    return rows_by_pack


def drawn_of_each(sizes: Sequence[int], num_drawn: int, seed: int) -> Iterator[list[int]]:
    """Yield the part of a sample over several lists that falls into each, as ascending indices in the list.

    Example: sizes [2, 3], 5 drawn -> [0, 1], [0, 1, 2].
    """
    total = sum(sizes)
    places = np.sort(np.random.default_rng(seed).choice(total, size=min(num_drawn, total), replace=False))
    for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        yield (places[(places >= first) & (places < first + size)] - first).tolist()


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
    bridge_version: str | None = None  #: of Megatron-Bridge; None for the recipe's
    resume_step: int = 0  #: steps that the loaded checkpoint had done


class TracedRun:
    """A run over an artifact's packs."""

    def __init__(self, artifact: Artifact, options: RunOptions) -> None:
        """Load the settings; raises ConfigError if the recipe cannot be loaded, or a change to it is invalid."""
        self.artifact = artifact
        self.options = options
        self.source = _source(artifact, options)
        self._num_packs = {split.name: split.statistics.num_packs for split in artifact.manifest.splits}

    @property
    def has_world_size(self) -> bool:
        """Whether the number of the run's processes is known."""
        return self.options.world_size is not None or stated_world_size(self.source) is not None

    def user_path(self, path: str) -> str:
        """Return the name that a setting of the host has in the recipe or the config."""
        config = config_of_recipe(self.source) if isinstance(self.source, SFTRecipe) else self.source
        return config.user_path(path)

    def order(self, split: str) -> PackOrder:
        """Return the order of a split's packs.

        Raises:
            ConfigError: a setting is missing, or the host cannot run with it.
        """
        if split != TRAIN:
            PackOrder(self._settings(TRAIN))  # the host makes all loaders before it evaluates
        return PackOrder(self._settings(split))

    @property
    def version(self) -> str:
        """Version of Megatron-Bridge that the run uses."""
        bridge_version = self.options.bridge_version
        return self.source.bridge_version or TARGET.bridge if bridge_version is None else bridge_version

    @property
    def release(self) -> HostRelease:
        """The release that the version belongs to."""
        return release_of(self.version)

    @cached_property
    def schedule(self) -> EvaluationSchedule:
        """Schedule of the run's evaluations."""
        return evaluation_schedule(self.source, num_packs=self._num_packs, version=self.version)

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
        context, source = self.options.context, self.source
        if context is not None and isinstance(source, SFTRecipe):  # sizes depend on it
            source = source.override({"parallelism.context_parallel_size": context})
        settings = replay_settings(
            source,
            num_packs=self._num_packs,
            world_size=self.options.world_size,
            version=self.version,
            split=split,
            resume_step=self.options.resume_step,
        )
        if context is None or split != TRAIN:
            return settings
        return replace(settings, topology=replace(settings.topology, context_parallel_size=context))


def _source(artifact: Artifact, options: RunOptions) -> SFTRecipe | RunConfig:
    if options.recipe is None:
        return load_recipe(recorded_recipe_values(artifact.manifest), options.overrides)
    target = load_target(options.recipe, options.overrides, artifact=artifact.folder)
    if target.recipe is not None:
        return target.recipe
    if target.config is None:
        raise ConfigError(
            f"--recipe is {str(options.recipe)!r}, an artifact; allowed: a recipe, or a config of Megatron-Bridge. "
            "Without --recipe, the artifact's own recipe is used."
        )
    return target.config


def recorded_recipe(artifact: Artifact, overrides: Mapping[str, Any], *, may_change: str | None = None) -> SFTRecipe:
    """Return the manifest's recipe with the present location of its sources; a section may change, too.

    Raises:
        ConfigError: an override changes anything else.
    """
    for path in overrides:
        if path not in _PLACES and path.split(".")[0] != may_change:
            raise ConfigError(
                f"--set {path}; allowed: {', '.join(_PLACES)}. An artifact is verified with the recipe that it was "
                "built with; only the location of its sources may change."
            )
    return load_recipe(recorded_recipe_values(artifact.manifest), overrides)
