"""API functions that launch runs through nemo-run: plan, preview, submit, and the kinds of executors.

Modules that import nemo-run, which takes seconds, are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgepack.config.arguments import check_arguments
from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.launching.plan import LaunchPlan
from bridgepack.launching.plan import plan_launch as plan_launch
from bridgepack.launching.results import LaunchInterrupt as LaunchInterrupt
from bridgepack.launching.results import Listener
from bridgepack.records.launches import DryRun, LaunchResult

if TYPE_CHECKING:
    from bridgepack.launching.tasks import LaunchTask


@check_arguments
def launch(
    recipe: SFTRecipe | Mapping[str, Any] | str | Path,
    cluster: ClusterConfig | Mapping[str, Any] | str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    cluster_overrides: Mapping[str, Any] | None = None,
    artifact: str | Path | None = None,
    skip: Collection[str] = (),
    environment: str | Path | None = None,
    real_validate: bool | None = None,
    detach: bool = False,
    follow: bool = False,
    listener: Listener | None = None,
) -> LaunchResult:
    """Build, check, then train a recipe on a cluster, as one nemo-run experiment; return the results.

    Example: `bridgepack.launch("recipes/mine.yaml", "cluster.yaml", overrides={"schedule.train_iters": 100})`.

    Args:
        recipe: an SFTRecipe or its location, as for `build`.
        cluster: a ClusterConfig, a dict of its fields, `FILE.yaml`, `FILE.toml`, or `local` or `torchrun` for this
            machine.
        overrides: dotted path -> value, for the recipe.
        cluster_overrides: dotted path -> value, for the cluster.
        artifact: existing packs to use; nothing is built.
        skip: tasks to skip: build, check, train.
        environment: `here`, or a file that lists the packages on the nodes.
        real_validate: whether the installed megatron-bridge validates the run, too, in a process of its own (default:
            yes, unless the environment variable BRIDGEPACK_REAL_VALIDATE is 0).
        detach: return once everything is submitted.
        follow: stream the logs of the tasks to standard error.
        listener: called with a task's name and state at every state change.

    Raises:
        LaunchRefusedError: the check found errors; nothing was submitted. They are in its `report`.
        LaunchError: nemo-run or the cluster cannot start the run.
        ConfigError: recipe, cluster or an argument is invalid.
        LaunchInterrupt: the launch was interrupted; its `result` has the state of each task.
    """
    require_nemo_run()
    how: dict[str, Any] = {"artifact": artifact, "skip": skip, "environment": environment}
    how |= {"overrides": overrides, "cluster_overrides": cluster_overrides, "real_validate": real_validate}
    plan = plan_launch(recipe, cluster, **how)
    return submit_launch(plan, detach=detach, follow=follow, listener=listener)


def submit_launch(
    plan: LaunchPlan,
    *,
    tasks: Sequence[LaunchTask] | None = None,
    detach: bool = False,
    follow: bool = False,
    listener: Listener | None = None,
) -> LaunchResult:
    """Submit a plan of `plan_launch` and return the results of its tasks.

    Example: `bridgepack.submit_launch(bridgepack.plan_launch("mine.yaml", "cluster.yaml"))`.

    Args:
        plan: the plan.
        tasks: what `launching.tasks.make_tasks(plan)` returns, with changes such as plugins (default: unchanged).
        detach: as for `launch`, as are the others.
        follow: stream the logs of the tasks to standard error.
        listener: called with a task's name and state at every state change.

    Raises:
        LaunchError: as `launch`.
        ConfigError: as `launch`.
        LaunchInterrupt: as `launch`.
    """
    require_nemo_run()
    from bridgepack.launching.experiment import submit

    return submit(plan, tasks=tasks, detach=detach, follow=follow, listener=listener)


def preview_launch(plan: LaunchPlan, *, detach: bool = False) -> DryRun:
    """Return the scripts that a plan of `plan_launch` would submit; nothing is left behind.

    Example: `bridgepack.preview_launch(bridgepack.plan_launch("mine.yaml", "cluster.yaml")).scripts`.

    Args:
        plan: the plan.
        detach: as for `launch`.

    Raises:
        ConfigError: as `launch`.
        LaunchError: nemo-run cannot generate the scripts.
    """
    require_nemo_run()
    from bridgepack.launching.dry_run import preview

    return preview(plan, detach=detach)


def require_nemo_run() -> None:
    """Check that nemo-run is installed, without importing it, which takes seconds.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("nemo_run") is None:
        raise ConfigError(
            'launching needs nemo-run, which is not installed. In a clone of bridgepack: pip install -e ".[launch]"'
        )
