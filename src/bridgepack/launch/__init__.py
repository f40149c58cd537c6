"""Launches a run through nemo-run: executors, tasks, experiment. The only layer that imports nemo_run.

The package can be called: `bridgepack.launch("recipe.yaml", "cluster.yaml")`.

In: a recipe and a cluster. Out: a plan, nemo-run's own objects, and what came of the tasks.
Read first: `plan`, then `tasks` and `experiment`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bridgepack.errors import ConfigError

if TYPE_CHECKING:
    from bridgepack.config.cluster.cluster import ClusterConfig
    from bridgepack.config.recipe.recipe import SFTRecipe
    from bridgepack.launch.results import LaunchResult, Listener


def launch(
    recipe: SFTRecipe | Mapping[str, Any] | str | Path,
    cluster: ClusterConfig | Mapping[str, Any] | str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    cluster_overrides: Mapping[str, Any] | None = None,
    artifact: str | Path | None = None,
    skip: Collection[str] = (),
    environment: str | Path | None = None,
    detach: bool = False,
    follow: bool = False,
    listener: Listener | None = None,
) -> LaunchResult:
    """Build, check, then train a recipe on a cluster, as one experiment of nemo-run; return what came of it.

    Example: `bridgepack.launch("recipes/mine.yaml", "cluster.yaml", overrides={"schedule.train_iters": 100})`.

    Args:
        recipe: an SFTRecipe, or where one is, as for `build`.
        cluster: a ClusterConfig, a dict of its fields, `FILE.yaml`, `FILE.toml`, or `local` or `torchrun` for this
            machine.
        overrides: dotted path -> value, for the recipe.
        cluster_overrides: the same, for the cluster.
        artifact: packs that are there already; nothing is built.
        skip: tasks to leave out: build, check, train.
        environment: `here`, or a file that lists what is installed on the nodes.
        detach: return once everything is submitted.
        follow: print the logs of the tasks to standard error as they grow.
        listener: called with a task's name and its state at every change.

    Raises:
        LaunchRefusedError: the check found errors; nothing was submitted. Its `report` has them.
        LaunchError: nemo-run or the cluster cannot start the run.
        ConfigError: recipe, cluster or an argument is nothing that can run.
        LaunchInterrupt: a KeyboardInterrupt that knows the state of each task.
    """
    require_nemo_run()
    from bridgepack.launch.experiment import submit
    from bridgepack.launch.plan import plan_launch

    plan = plan_launch(
        recipe,
        cluster,
        overrides=overrides,
        cluster_overrides=cluster_overrides,
        artifact=artifact,
        skip=skip,
        environment=environment,
    )
    return submit(plan, detach=detach, follow=follow, listener=listener)


def require_nemo_run() -> None:
    """Make sure that nemo-run is installed; it is not imported, which takes seconds.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("nemo_run") is None:
        raise ConfigError(
            'launching needs nemo-run, which is not installed. In a clone of bridgepack: pip install -e ".[launch]"'
        )


class _CallableModule(ModuleType):
    """The package, so that `bridgepack.launch` is the function and the home of its modules."""

    def __call__(self, recipe: Any, cluster: Any, **options: Any) -> Any:
        """Return what came of a launch, as `launch` in it."""
        return launch(recipe, cluster, **options)


sys.modules[__name__].__class__ = _CallableModule
