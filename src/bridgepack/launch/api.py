"""The `launch` command from Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.launch.installed import require_nemo_run
from bridgepack.launch.plan import plan_launch
from bridgepack.launch.results import LaunchResult

if TYPE_CHECKING:
    from bridgepack.launch.watching import Listener


def launch(
    recipe: SFTRecipe | str | Path,
    cluster: ClusterConfig | str | Path,
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
        cluster: a ClusterConfig, `FILE.yaml`, `FILE.toml`, or `local` or `torchrun` for this machine.
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
    plan = plan_launch(
        recipe,
        cluster,
        overrides=overrides,
        cluster_overrides=cluster_overrides,
        artifact=artifact,
        skip=skip,
        environment=environment,
    )
    from bridgepack.launch.experiment import submit

    return submit(plan, detach=detach, follow=follow, listener=listener)
