"""Launches a run through nemo-run: executors, tasks, experiment. The only layer that imports nemo_run.

In: a recipe and a cluster. Out: a plan, nemo-run's own objects, and the results of the tasks.
Read first: `plan`, then `tasks` and `experiment`.
"""

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bridgepack.config.arguments import checked
from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.launching.results import LaunchResult, Listener


@checked
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
    from bridgepack.launching.experiment import submit
    from bridgepack.launching.plan import plan_launch

    how: dict[str, Any] = {"artifact": artifact, "skip": skip, "environment": environment}
    how |= {"overrides": overrides, "cluster_overrides": cluster_overrides, "real_validate": real_validate}
    plan = plan_launch(recipe, cluster, **how)
    return submit(plan, detach=detach, follow=follow, listener=listener)


def require_nemo_run() -> None:
    """Check that nemo-run is installed, without importing it, which takes seconds.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("nemo_run") is None:
        raise ConfigError(
            'launching needs nemo-run, which is not installed. In a clone of bridgepack: pip install -e ".[launch]"'
        )
