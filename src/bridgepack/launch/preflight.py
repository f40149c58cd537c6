"""PreflightPlugin: one line in a script of nemo-run that makes it refuse to submit a run that `check` rejects."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run import Executor, Plugin, Script
from nemo_run.core.frontend.console.api import CONSOLE

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, named_environment
from bridgepack.config.errors import shown
from bridgepack.errors import ConfigError, LaunchRefusedError
from bridgepack.launch.nemo_cli.types import OptionalFlag, OptionalNumber, OptionalText, with_types
from bridgepack.launch.preflight_target import is_run_recipe, trained_target
from bridgepack.launch.preflight_world import sees_this_machine, world_size_of
from bridgepack.report.checks import rendered

_PATHS = ("target", "artifact", "environment")
_OPTIONS = "(here the options of `bridgepack check` are arguments: PreflightPlugin(artifact=..., environment=...))"


@dataclass(kw_only=True)
class PreflightPlugin(Plugin):  # type: ignore[misc]
    """Checks what a task trains before nemo-run submits it; put it last in the list of plugins.

    Plugins act one after the other, and this one judges what those before it have made of the task.

    Example: `experiment.add(task, executor=executor, plugins=[NsysPlugin(...), PreflightPlugin(artifact="packed")])`.
    """

    #: what is trained, as `bridgepack check` takes it: `bridge:FUNCTION`, FILE.yaml, FILE.py:FUNCTION,
    #: package.module:FUNCTION. It may be left out for a `run.Partial` whose argument `recipe` or `config` is an
    #: SFTRecipe or a ConfigContainer. Overrides among a script's arguments count, too
    target: OptionalText = None
    artifact: OptionalText = None  #: folder of the packs that the run will read, as this machine sees it
    #: dotted path -> value, for what a script sets in its own code; after those of its arguments
    overrides: dict[str, Any] = field(default_factory=dict)
    #: codes, beginnings of codes or names of the rules to run; all by default
    select: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)  #: the same, of rules not to run
    environment: OptionalText = None  #: `here`, or a file that lists what is installed where it runs
    bridge_version: OptionalText = None  #: version of megatron-bridge to judge for
    world_size: OptionalNumber = None  #: number of GPUs; by default what the executor says
    strict: bool = False  #: whether warnings refuse, too
    #: whether the run's paths are looked up on this machine; by default where it runs here
    looks_at_files: OptionalFlag = None

    def __post_init__(self) -> None:
        """Keep paths as texts: nemo-run writes a plugin's fields into the experiment's folder.

        Raises:
            ConfigError: a field is no text, or no path.
        """
        for name in _PATHS:
            value = getattr(self, name)
            if isinstance(value, os.PathLike):
                setattr(self, name, os.fspath(value))
            elif value is not None and not isinstance(value, str):
                raise ConfigError(
                    f"PreflightPlugin: {name} is {shown(value)}; allowed: a text or a path. A config that is an object "
                    "is saved with cfg.to_yaml(FILE), or named by the function that makes it, FILE.py:FUNCTION."
                )
        for name, kind in (("strict", bool), ("looks_at_files", (bool, type(None)))):
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"PreflightPlugin: {name} is {shown(getattr(self, name))}; allowed: True or False.")

    def setup(self, task: Any, executor: Executor) -> None:
        """Check what a task trains; nemo-run calls this when the task is added, before anything is submitted.

        Raises:
            LaunchRefusedError: the check fails; the findings are its text.
            ConfigError: what is trained cannot be told, or the plugin's fields are wrong.
        """
        CheckOptions(overrides=self.overrides, select=self.select, ignore=self.ignore, world_size=self.world_size)
        world_size = self.world_size or world_size_of(executor, command=_command(task))
        artifact = Path(self.artifact) if self.artifact is not None else None
        found = trained_target(task, executor, target=self.target, overrides=self.overrides, artifact=artifact)
        looks = sees_this_machine(executor) and not is_run_recipe(task)
        options = CheckOptions(
            artifact=artifact,
            world_size=world_size,
            bridge_version=self.bridge_version,
            environment=named_environment(self.environment),
            select=tuple(self.select),
            ignore=tuple(self.ignore),
            looks_at_files=looks if self.looks_at_files is None else self.looks_at_files,
        )
        report = check_target(found, options)
        text = rendered(report, "text", has_colour=False, shows_advice=False, shows_skipped=False).rstrip("\n")
        what = f"{found.place}, on {world_size} GPU{'s' if world_size > 1 else ''}"
        if report.fails(strict=self.strict):
            message = f"nothing was submitted: the check of {what} fails.\n\n{text}\n{_OPTIONS}"
            raise LaunchRefusedError(message, report)
        shown_text = text if report.num_warnings else text.rpartition("\n\n")[2]
        _show(f"preflight: {what}\n{shown_text}")


with_types(PreflightPlugin.__init__)


def _command(task: Any) -> str:
    return (task.inline or task.entrypoint) if isinstance(task, Script) else "python"


def _show(text: str) -> None:
    """Write to nemo-run's own console, as its other messages."""
    CONSOLE.print(text, markup=False, highlight=False, soft_wrap=True)
