"""What a launch will do, what it would submit, and how its tasks ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bridgepack.records.results import Result

State = Literal["not started", "submitted", "pending", "running", "succeeded", "failed", "cancelled", "unknown"]
#: States in which a job still uses, or may still use, the cluster.
ALIVE: frozenset[State] = frozenset({"submitted", "pending", "running", "unknown"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOutline:
    """What a launch will do, in the facts that a reader is shown."""

    run_name: str
    recipe: str  #: its location, as the user gave it
    cluster: str  #: its title
    executors: Mapping[str, str]  #: task -> title of what runs it, in order
    world_size: int  #: processes of the training
    packs: str  #: their folder; empty if the run reads none
    packing_mode: str  #: the recipe's
    run_folder: str
    git: Mapping[str, Any] | None  #: commit and is_dirty of the launching folder; None outside a repository
    warning_codes: tuple[str, ...]  #: of the check's warnings, one for each
    num_rules_run: int
    num_rules_skipped: int  #: rules that need the packs or the nodes
    notes: tuple[str, ...]  #: one sentence each


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskScript:
    """What would be submitted for one task."""

    task: str  #: build, check or train
    title: str  #: description of the text
    command: str  #: command that submits it; empty if no command does
    depends_on: tuple[str, ...]  #: tasks that must succeed first
    text: str  #: the script, manifest or command


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRun(Result):
    """The preview of a launch."""

    TABLE: ClassVar = "scripts"

    outline: LaunchOutline  #: what the launch would do
    recipe_text: str  #: the recipe with every override, as YAML
    scripts: tuple[TaskScript, ...]  #: what would be submitted, in order
    values: Mapping[str, Any]  #: all of it as plain values

    def headline(self) -> str:
        """Return what would be submitted, in one line."""
        return f"{self.outline.run_name}: {', '.join(script.task for script in self.scripts)}; nothing was submitted"

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as plain values, for JSON."""
        return dict(self.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskResult:
    """Result of one task."""

    name: str  #: build, check or train
    executor: str  #: its kind
    state: State  #: as far as this process knows it
    job: str = ""  #: the scheduler's job id; empty before submission
    log: str = ""  #: file or folder of its output; empty if only nemo-run can fetch it
    log_end: tuple[str, ...] = ()  #: last lines of the log, if the task has not succeeded and the log is a file here
    seconds: float | None = None  #: from submission to end; None if it has not ended


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchResult(Result):
    """Result of a launch."""

    DERIVED: ClassVar = ("has_failed",)
    TABLE: ClassVar = "tasks"

    run_name: str  #: name of the run, and id of nemo-run's experiment
    run_folder: str  #: folder of the run, as the tasks see it
    experiment_folder: str  #: nemo-run's folder of the experiment on this machine
    tasks: tuple[TaskResult, ...]  #: in order
    is_detached: bool = False  #: the tasks continue without this process

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.run_name}: {', '.join(f'{task.name} {task.state}' for task in self.tasks)}"

    @property
    def has_failed(self) -> bool:
        """True if a task did not succeed; a task that continues without this process has not failed."""
        return any(task.state != "succeeded" and not (self.is_detached and task.state in ALIVE) for task in self.tasks)

    @property
    def alive(self) -> tuple[TaskResult, ...]:
        """Submitted tasks that have not ended."""
        return tuple(task for task in self.tasks if task.state in ALIVE)
