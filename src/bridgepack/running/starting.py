"""What is decided before a model is built: the recipe for this world size, its packs, the last check, pack order."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridgepack import __version__
from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.targets import Target
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.report import CheckReport
from bridgepack.running.assignment import Assignment, artifact_of
from bridgepack.running.folder import LAUNCH_FILE, RunFolder
from bridgepack.running.program import num_cores
from bridgepack.running.resuming import Resumption, data_order, resumption

#: Distributions that can change a run's results or its start.
_STACK = (
    *("megatron-bridge", "megatron-core", "transformer-engine", "transformer-engine-cu12", "transformer-engine-cu13"),
    *("torch", "flash-attn", "nvidia-resiliency-ext", "nemo-run", "transformers", "tokenizers", "pyarrow"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a job is about to train."""

    recipe: SFTRecipe  #: recipe for the actual number of processes
    artifact: Path | None  #: folder of the packs; None for a run that reads none
    config: Any  #: the host's ConfigContainer
    run_folder: RunFolder  #: folder of the run
    world_size: int  #: number of processes

    @property
    def settings(self) -> RunConfig:
        """The ConfigContainer's settings, with the recipe fields they come from."""
        named = config_of_recipe(self.recipe, artifact=self.artifact)
        return replace(
            config_of_container(self.config, place=self.recipe.name),
            user_paths=named.user_paths,
            ignored=self.recipe.ignore,
            world_size=self.world_size,
        )


def start_of(assignment: Assignment, world_size: int) -> Start:
    """Return the start of an assignment on a number of processes; the same for every process of a job.

    Raises:
        ConfigError: the recipe is for another number, its packs are missing or not the checked ones, or the host cannot
            make a config of it.
    """
    recipe = _for_world(assignment.recipe, world_size)
    if assignment.world_size not in (None, world_size):
        raise ConfigError(
            f"the run was planned and checked for {assignment.world_size} processes, and this job has {world_size}. "
            "Launch it again for that number."
        )
    artifact = artifact_of(assignment).absolute() if recipe.packing.mode == "offline" else None
    if artifact is not None:
        _check_same_packs(artifact, assignment.run_folder)
    return Start(
        recipe=recipe,
        artifact=artifact,
        config=recipe.to_bridge(artifact),
        run_folder=assignment.run_folder,
        world_size=world_size,
    )


def checked(start: Start) -> CheckReport:
    """Return the check report on the run as it is about to start: config, packs, processes, this environment.

    Raises:
        ArtifactError: the packs cannot be read.
        RuleCrashError: a rule raised.
    """
    target = Target(kind="recipe", place=start.recipe.name, recipe=start.recipe, config=start.settings)
    here, size = environment_here(), start.world_size
    options = CheckOptions(artifact=start.artifact, world_size=size, environment=here, num_workers=num_cores())
    return check_target(target, options)


def resumed(start: Start) -> Resumption:
    """Return the order of the run's packs, and reasons not to resume from its checkpoint.

    Raises:
        ConfigError: the record of the checkpoint's packs cannot be read.
    """
    if start.artifact is None:
        return Resumption()
    version = environment_here().versions.get(BRIDGE, "")
    order = data_order(start.settings, start.artifact, world_size=start.world_size, version=version)
    return resumption(start.config.checkpoint, order, ignored=start.recipe.ignore)


def facts_of(start: Start, resumption: Resumption) -> Mapping[str, Any]:
    """Return the facts of this start of the training, for the run's folder."""
    resolved = start.recipe.resolve().explain() if start.recipe.packing.mode == "offline" else {}
    installed, order = environment_here().versions, resumption.order
    versions = {"bridgepack": __version__, "python": platform.python_version()}
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": start.recipe.name,
        "artifact": None if start.artifact is None else str(start.artifact),
        "fingerprint": order.fingerprint if order else None,
        "order": asdict(order) if order else None,
        "resolved": resolved,
        "world_size": start.world_size,
        "versions": {**versions, **{name: installed[name] for name in _STACK if name in installed}},
        "git": (start.run_folder.read(LAUNCH_FILE) or {}).get("git"),
        "resumed_from": None if resumption.checkpoint is None else str(resumption.checkpoint),
        "guard": start.recipe.guard.model_dump(),
    }


def _for_world(recipe: SFTRecipe, world_size: int) -> SFTRecipe:
    """Return the recipe for a number of processes."""
    stated = recipe.parallelism.num_gpus
    if stated is None:
        return recipe.override({"parallelism.num_gpus": world_size})
    if stated != world_size:
        raise ConfigError(
            f"parallelism.num_gpus is {stated}, and this job has {world_size} processes, one per GPU. Give the "
            f"job {stated}, or set parallelism.num_gpus to {world_size}."
        )
    return recipe


def _check_same_packs(artifact: Path, folder: RunFolder) -> None:
    """Refuse packs that differ from those recorded by the previous tasks."""
    place = folder.read_artifact()
    if place is None or Path(place.path) != artifact or not (artifact / MANIFEST_FILE).is_file():
        return
    found = read_manifest(artifact).fingerprint
    if found != place.fingerprint:
        raise ConfigError(
            f"{str(artifact)!r} has the fingerprint {found[:12]}, and the previous tasks saw "
            f"{place.fingerprint[:12]}: the packs were rebuilt since. Launch the run again."
        )
