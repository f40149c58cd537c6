"""Launches a run through nemo-run: executors, tasks, experiment. The only layer that imports nemo_run.

The package can be called: `bridgepack.launch("recipe.yaml", "cluster.yaml")`.

In: a recipe and a cluster. Out: a plan, nemo-run's own objects, and what came of the tasks.
Read first: `plan`, then `tasks` and `experiment`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.launch.api import launch
    from bridgepack.launch.dry_run import preview
    from bridgepack.launch.executors import make_executor
    from bridgepack.launch.experiment import submit
    from bridgepack.launch.plan import plan_launch
    from bridgepack.launch.preflight import PreflightPlugin
    from bridgepack.launch.tasks import make_tasks

__all__ = ["PreflightPlugin", "launch", "make_executor", "make_tasks", "plan_launch", "preview", "submit"]

_HOMES = {
    "PreflightPlugin": "preflight",
    "launch": "api",
    "make_executor": "executors",
    "make_tasks": "tasks",
    "plan_launch": "plan",
    "preview": "dry_run",
    "submit": "experiment",
}
_WITHOUT_NEMO_RUN = frozenset({"launch", "plan_launch"})


def __getattr__(name: str) -> Any:
    """Import public names on first use; nemo-run takes seconds.

    Raises:
        AttributeError: for any other name.
        ConfigError: nemo-run is not installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'bridgepack.launch' has no attribute {name!r}")
    if name not in _WITHOUT_NEMO_RUN:
        from bridgepack.launch.installed import require_nemo_run

        require_nemo_run()
    return getattr(import_module(f"bridgepack.launch.{_HOMES[name]}"), name)


class _CallableModule(ModuleType):
    """The package, so that `bridgepack.launch` is the function and the home of the others."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Launch a run, as `bridgepack.launch.launch` says."""
        from bridgepack.launch.api import launch as launch_run

        return launch_run(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
