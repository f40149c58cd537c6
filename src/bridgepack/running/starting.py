"""What is decided before a model is built: the recipe for this world size, its packs, the last check, pack order.

Megatron-Bridge resumes by skipping as many packs as the checkpoint counted. With another artifact or order, it skips
packs that were never read, without an error.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bridgepack import __version__
from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.imports import import_host
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.bridge.targets import Target
from bridgepack.bridge.variables import with_variables
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.files import write_text
from bridgepack.errors import ConfigError
from bridgepack.records import Finding, RunConfig
from bridgepack.records.guarded import DataOrder, ResumeFacts
from bridgepack.replay.settings import ReplaySettings
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.judgement import findings_of
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.registry import RESUME_RULES
from bridgepack.running.assignment import LAUNCH_FILE, Assignment, RunFolder, artifact_of, num_cores
from bridgepack.running.guard.unchanged import CheckedFiles
from bridgepack.user_files import read_text

#: File beside the checkpoints.
ORDER_FILE = "bridgepack.json"
#: Increased when older files could be misread.
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """What a job finds that may resume from a checkpoint."""

    order: DataOrder | None = None  #: order of this job; None for a run that reads no packs
    checkpoint: Path | None = None  #: folder that the host resumes from; None for a new run
    before: DataOrder | None = None  #: order of the run that wrote the checkpoint; None if unknown
    findings: tuple[Finding, ...] = ()  #: reasons not to resume


def data_order(config: RunConfig, artifact: Path, *, world_size: int, version: str) -> DataOrder:
    """Return the order in which a run reads its packs; without a manifest only the artifact's path is known.

    Raises:
        ArtifactError: the manifest cannot be read.
    """
    if not (artifact / MANIFEST_FILE).is_file():
        return DataOrder(fingerprint="", artifact=str(artifact))
    manifest = read_manifest(artifact)
    order = DataOrder(fingerprint=manifest.fingerprint, artifact=str(artifact))
    num_packs = {split.name: split.statistics.num_packs for split in manifest.splits}
    try:
        settings = replay_settings(config, num_packs=num_packs, world_size=world_size, version=version)
    except ConfigError:  # a loader that cannot be replayed; the fingerprint is still compared
        return order
    return ordered_by(settings, order)


def ordered_by(settings: ReplaySettings, order: DataOrder) -> DataOrder:
    """Return an order with all that a replay reads to tell which packs a step gets."""
    return replace(
        order,
        global_batch_size=settings.global_batch_size,
        data_parallel_size=settings.topology.data_parallel_size,
        seed=settings.seed,
        num_packs=settings.num_samples,
        loader=settings.loader,
        micro_batch_size=settings.micro_batch_size,
        drop_last=settings.drop_last,
        data_sharding=settings.data_sharding,
        is_limited=settings.max_samples is not None,
    )


def resumption(checkpoint: Any, order: DataOrder, *, suppressions: Mapping[str, str]) -> Resumption:
    """Return the checkpoint that a job resumes from by the host's CheckpointConfig, and conflicts with its order.

    Source: megatron/bridge/training/setup.py (load_checkpoint_exists) of 0.6.2.
    """
    checkpoint_exists = import_host("training.utils.checkpoint_utils").checkpoint_exists
    begins_anew = checkpoint.load is None or checkpoint.finetune or not checkpoint_exists(checkpoint.load)
    folder = None if begins_anew else Path(checkpoint.load)
    before = None if folder is None else read_order(folder)
    if folder is None or before is None:
        return Resumption(order=order, checkpoint=folder)
    facts = ResumeFacts(checkpoint=str(folder), before=before, now=order)
    findings = [
        finding
        for rule in RESUME_RULES
        if not suppressions.get(rule.code, "").strip()
        for finding in findings_of(rule, list(rule.check(facts)), max_examples=1)
    ]
    return Resumption(order=order, checkpoint=folder, before=before, findings=tuple(findings))


def read_order(folder: Path) -> DataOrder | None:
    """Return the order of the run whose checkpoints are in a folder or its parent; None if not recorded.

    Raises:
        ConfigError: the file cannot be read.
    """
    for path in (folder / ORDER_FILE, folder.parent / ORDER_FILE):
        try:
            content = json.loads(read_text(path))
            if not isinstance(content, dict) or content.get("format_version") != FORMAT_VERSION:
                raise ValueError("it has another format version")
            return TypeAdapter(DataOrder).validate_python(content)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path} cannot be read: {error}. It records the packs of the checkpoints beside it. "
                "Restore it, or remove it if you know that the packs are the same."
            ) from None
    return None


def write_order(folder: Path, order: DataOrder) -> None:
    """Write the order of a run beside its checkpoints.

    Raises:
        ConfigError: the folder cannot be written.
    """
    content = {"format_version": FORMAT_VERSION, **asdict(order)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / ORDER_FILE, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(
            f"checkpoint.folder is {str(folder)!r}; nothing can be written there: {error}. Set a folder that can be "
            "written.",
            field="checkpoint.folder",
        ) from None


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
        of_recipe = config_of_recipe(self.recipe, artifact=self.artifact)
        return replace(
            config_of_container(self.config, place=self.recipe.name),
            user_paths=of_recipe.user_paths,
            recipe_fields=of_recipe.recipe_fields,
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


def check_start(start: Start) -> CheckReport:
    """Return the check report on the run as it is about to start: config, packs, processes, this environment.

    Raises:
        ArtifactError: the packs cannot be read.
        RuleCrashError: a rule raised.
    """
    config = with_variables(start.settings, os.environ, place="this process's environment")
    target = Target(kind="recipe", place=start.recipe.name, recipe=start.recipe, config=config)
    environment, size = environment_here(), start.world_size
    options = CheckOptions(artifact=start.artifact, world_size=size, environment=environment, num_workers=num_cores())
    return check_target(target, options)


def resume_order(start: Start) -> Resumption:
    """Return the order of the run's packs, and reasons not to resume from its checkpoint.

    Raises:
        ConfigError: the record of the checkpoint's packs cannot be read.
    """
    if start.artifact is None:
        return Resumption()
    version = environment_here().versions.get(BRIDGE, "")
    order = data_order(start.settings, start.artifact, world_size=start.world_size, version=version)
    return resumption(start.config.checkpoint, order, suppressions=start.recipe.ignore)


def facts_of(start: Start, resumption: Resumption) -> Mapping[str, Any]:
    """Return the facts of this start of the training, for the run's folder."""
    derived_values = start.recipe.resolve().explain() if start.recipe.packing.mode == "offline" else {}
    versions_here, order = environment_here().versions, resumption.order
    versions = {"bridgepack": __version__, "python": platform.python_version()}
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": start.recipe.name,
        "artifact": None if start.artifact is None else str(start.artifact),
        "fingerprint": order.fingerprint if order else None,
        "order": asdict(order) if order else None,
        "resolved": derived_values,
        "world_size": start.world_size,
        "versions": {**versions, **{name: versions_here[name] for name in _STACK if name in versions_here}},
        "git": (start.run_folder.read(LAUNCH_FILE) or {}).get("git"),
        "resumed_from": None if resumption.checkpoint is None else str(resumption.checkpoint),
        "guard": start.recipe.guard.model_dump(),
    }


def _for_world(recipe: SFTRecipe, world_size: int) -> SFTRecipe:
    num_gpus = recipe.parallelism.num_gpus
    if num_gpus is None:
        return recipe.override({"parallelism.num_gpus": world_size})
    if num_gpus != world_size:
        raise ConfigError(
            f"parallelism.num_gpus is {num_gpus}, and this job has {world_size} processes, one per GPU. Give the "
            f"job {num_gpus}, or set parallelism.num_gpus to {world_size}.",
            field="parallelism.num_gpus",
        )
    return recipe


def checked_files(start: Start) -> CheckedFiles | None:
    """Return the artifact's files as they are now; None for a run without packs, or packs without a manifest.

    Raises:
        ArtifactError: the manifest cannot be read.
    """
    if start.artifact is None or not (start.artifact / MANIFEST_FILE).is_file():
        return None
    return CheckedFiles(start.artifact)


def _check_same_packs(artifact: Path, folder: RunFolder) -> None:
    place = folder.read_artifact()
    if place is None or Path(place.path) != artifact or not (artifact / MANIFEST_FILE).is_file():
        return
    fingerprint = read_manifest(artifact).fingerprint
    if fingerprint != place.fingerprint:
        raise ConfigError(
            f"{str(artifact)!r} has the fingerprint {fingerprint[:12]}, and the previous tasks saw "
            f"{place.fingerprint[:12]}: the packs were rebuilt since. Launch the run again."
        )
