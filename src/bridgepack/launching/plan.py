"""The plan of a launch, decided and checked before nemo-run is involved."""

import contextlib
import glob
import secrets
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bridgepack import __version__
from bridgepack.bridge.refusing.recipes import refuse_packs_unread
from bridgepack.bridge.targets import Target, recipe_target, saying_places
from bridgepack.bridge.variables import with_variables
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, is_asked_by_default, named_environment
from bridgepack.config.arguments import check_arguments
from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.cluster import ClusterConfig, load_cluster
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.pack_paths import pack_paths_in
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError, LaunchRefusedError
from bridgepack.launching.refusals import path_notes, planned_tasks, refuse_missing_files, refuse_unlaunchable
from bridgepack.records.launches import LaunchOutline
from bridgepack.rules.judging.environment import Environment
from bridgepack.rules.judging.report import CheckReport
from bridgepack.running.assignment import Assignment, RunFolder, num_cores

#: `python` value of the cluster file that means this interpreter for tasks on this machine.
DEFAULT_PYTHON = "python"
_OFFLINE = "offline"
_GIT_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """What a launch will do."""

    recipe: SFTRecipe  #: with every override applied
    target: str  #: location of the recipe, as the user gave it
    cluster: ClusterConfig  #: cluster that runs the tasks
    tasks: tuple[Task, ...]  #: names of the tasks to run, in order
    run_name: str  #: name of the run, and of nemo-run's experiment
    run_folder: str  #: folder of the run, as every task sees it
    artifacts: str  #: parent folder of a new artifact
    artifact: str | None  #: existing packs; None if the build task builds or finds them
    world_size: int  #: GPUs of the training
    report: CheckReport  #: report of the check before submission; no errors
    notes: tuple[str, ...]  #: notes for the user, one sentence each
    git: Mapping[str, Any] | None  #: commit and is_dirty of the launching folder; None outside a repository
    versions: Mapping[str, str]  #: package versions on the launching machine
    launched_at: str  #: time of the plan, in UTC

    def assignment(self) -> Assignment:
        """Return the assignment passed to every task."""
        return Assignment(
            recipe=self.recipe,
            run_folder=RunFolder(self.run_folder),
            artifacts=self.artifacts,
            artifact=self.artifact,
            world_size=self.world_size,
            judges_environment="train" in self.tasks or self.cluster.is_remote,
            launch=self.facts(),
        )

    def outline(self) -> LaunchOutline:
        """Return what the launch will do, in the facts that a reader is shown."""
        recipe, report = self.recipe, self.report
        packs = self.artifact or recipe.artifact or f"{self.artifacts}/{recipe.name}-FINGERPRINT"
        return LaunchOutline(
            run_name=self.run_name,
            recipe=self.target,
            cluster=self.cluster.title,
            executors={task: self.cluster.executor_for(task).title for task in self.tasks},
            world_size=self.world_size,
            packs=packs if recipe.packing.mode == _OFFLINE else "",
            packing_mode=recipe.packing.mode,
            run_folder=self.run_folder,
            git=self.git,
            warning_codes=tuple(finding.code for finding in report.findings if finding.severity == "warning"),
            num_rules_run=len(report.rules_run),
            num_rules_skipped=len(report.rules_skipped),
            notes=self.notes,
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts of the launch as plain values for the run folder, without secrets."""
        return {
            "run_name": self.run_name,
            "launched_at": self.launched_at,
            "recipe": self.target,
            "cluster": self.cluster.title,
            "tasks": {task: self.cluster.executor_for(task).kind for task in self.tasks},
            "world_size": self.world_size,
            "git": self.git and dict(self.git),
            "versions": dict(self.versions),
        }


@check_arguments
@saying_places
def plan_launch(
    recipe: SFTRecipe | Mapping[str, Any] | str | Path,
    cluster: ClusterConfig | Mapping[str, Any] | str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    cluster_overrides: Mapping[str, Any] | None = None,
    environment: str | Path | None = None,
    artifact: str | Path | None = None,
    skip: Collection[str] = (),
    real_validate: bool | None = None,
    run_name: str | None = None,
    progress: Progress | None = None,
) -> LaunchPlan:
    """Return the checked plan of a launch; writes and submits nothing.

    Arguments as for `bridgepack.launch`; `environment` defaults to `here` if the training runs on this machine.

    Raises:
        ConfigError: recipe, cluster or an argument is invalid, or they contradict each other.
        LaunchRefusedError: the check found errors.
    """
    target = recipe_target(load_recipe(recipe) if isinstance(recipe, Mapping) else recipe, overrides)
    sft, where = _recipe_of(target), load_cluster(cluster, cluster_overrides)
    tasks = planned_tasks(where, skip, builds=artifact is None and sft.packing.mode == _OFFLINE)
    packs, world_size = _packs(sft, where, tasks, artifact), _world_size(sft, where, tasks)
    refuse_unlaunchable(sft, where, tasks)
    if not where.is_remote:
        refuse_missing_files(sft, tasks)
    options = CheckOptions(
        artifact=_packs_here(sft, packs),
        environment=_environment_of_the_run(environment, where, tasks),
        looks_at_files=not where.is_remote,
        real_validate="train" in tasks and (is_asked_by_default() if real_validate is None else real_validate),
        trust_remote_code=True,  # the recipe's own word counts in a launch
        num_workers=num_cores(),
        world_size=world_size,
        overrides=overrides or {},
        progress=progress,
    )
    return LaunchPlan(
        recipe=sft,
        target=str(recipe) if isinstance(recipe, str | Path) else sft.name,
        cluster=where,
        tasks=tasks,
        artifact=packs,
        world_size=world_size,
        report=_check(target.reading(options.artifact), where, options),
        notes=tuple(path_notes(sft, where, packs)),
        **_run_names(sft, where, run_name),
    )


def _packs_here(recipe: SFTRecipe, packs: str | None) -> Path | None:
    place = packs or recipe.artifact if recipe.packing.mode == _OFFLINE else None
    return Path(place) if place is not None and _exists(place) else None


def _recipe_of(target: Target) -> SFTRecipe:
    assert target.recipe is not None
    return target.recipe


def _environment_of_the_run(
    name: str | Path | None, cluster: ClusterConfig, tasks: Collection[str]
) -> Environment | None:
    # The packages on other machines are unknown.
    trains_here = "train" in tasks and not cluster.is_remote and cluster.python == DEFAULT_PYTHON
    return named_environment("here" if name is None and trains_here else name)


def _run_names(recipe: SFTRecipe, cluster: ClusterConfig, run_name: str | None) -> dict[str, Any]:
    now, versions = datetime.now(UTC), {"bridgepack": __version__}
    with contextlib.suppress(PackageNotFoundError):
        versions["nemo-run"] = version("nemo-run")
    name = run_name or f"{recipe.name}_{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    workspace = cluster.workspace_path.rstrip("/")
    return {
        "run_name": name,
        "run_folder": f"{workspace}/runs/{name}",
        "artifacts": f"{workspace}/artifacts",
        "launched_at": now.isoformat(timespec="seconds"),
        "git": _git_state(Path.cwd()),
        "versions": versions,
    }


def _packs(
    recipe: SFTRecipe, cluster: ClusterConfig, tasks: Collection[str], artifact: str | Path | None
) -> str | None:
    refuse_packs_unread(recipe, artifact)
    if "build" in tasks or recipe.packing.mode != _OFFLINE:
        _refuse_packs_beside_a_build(recipe)
        return None
    place = str(artifact) if artifact is not None else recipe.artifact
    if place is None:
        raise ConfigError(
            "--skip build leaves the run without packs: neither --artifact nor the recipe's artifact is set. "
            "Add --artifact FOLDER, or do not skip build."
        )
    if cluster.is_remote:
        is_of_this_machine = artifact is not None and _exists(place)
        return str(Path(place).absolute()) if is_of_this_machine else place
    if "://" in place:
        raise ConfigError(
            f"{'--artifact' if artifact is not None else 'artifact'} is {place!r}, a URL; tasks on this machine read "
            "packs from its disk. Copy the artifact here."
        )
    if not _exists(place):
        raise ConfigError(
            f"{'--artifact' if artifact is not None else 'artifact'} is {place!r}; it does not exist, and build "
            "is skipped. Correct the path, or do not skip build."
        )
    return str(Path(place).absolute())


def _refuse_packs_beside_a_build(recipe: SFTRecipe) -> None:
    for override in pack_paths_in(recipe.bridge_overrides, recipe.release).values():
        raise ConfigError(
            f"{override.text()}, and the launch builds the packs of its run. Remove the override, or set artifact "
            "in its place and add --skip build.",
            field=override.place,
        )


def _exists(artifact: str) -> bool:
    return bool(glob.glob(artifact)) or Path(artifact).exists()  # noqa: PTH207 (a pattern, as `check` takes it)


def _world_size(recipe: SFTRecipe, cluster: ClusterConfig, tasks: Collection[str]) -> int:
    num_gpus = recipe.parallelism.num_gpus
    if "train" not in tasks and num_gpus is not None:
        return num_gpus
    world_size = cluster.processes("train", num_gpus).world_size
    if world_size is None:
        raise ConfigError(
            "parallelism.num_gpus is not set, and the cluster does not set the number of processes. Set it, e.g. "
            "--set parallelism.num_gpus=8.",
            field="parallelism.num_gpus",
        )
    if num_gpus is not None and num_gpus != world_size:
        processes = cluster.processes("train", num_gpus)
        hint = "launch on torchrun" if cluster.executor_for("train").kind == "local" else "change the cluster's nodes"
        raise ConfigError(
            f"parallelism.num_gpus is {num_gpus}, and the cluster starts {processes.num_nodes} x "
            f"{processes.num_per_node} processes. They must agree: --set parallelism.num_gpus={world_size}, or {hint}.",
            field="parallelism.num_gpus",
        )
    return world_size


def _check(target: Target, cluster: ClusterConfig, options: CheckOptions) -> CheckReport:
    recipe, config = _recipe_of(target), target.config
    assert config is not None
    variables, place = cluster.executor_for("train").env_vars, f"{cluster.place_of('train')}.env_vars"
    report = check_target(replace(target, config=with_variables(config, variables, place=place)), options)
    if report.has_errors:
        raise LaunchRefusedError(f"nothing was submitted: the check of {recipe.name} fails.", report)
    return report


def _git_state(folder: Path) -> dict[str, Any] | None:
    """Return `commit` and `is_dirty` (None if git times out) of a folder's repository; None without a repository."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain")
    return {"commit": commit, "is_dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", *arguments]
    try:
        process = subprocess.run(command, cwd=folder, capture_output=True, timeout=_GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.decode(errors="replace").strip() if process.returncode == 0 else None
