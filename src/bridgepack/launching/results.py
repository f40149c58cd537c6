"""Results of a launch: the state and log of each task, and which tasks still run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from bridgepack.records.results import Result

State = Literal["not started", "submitted", "pending", "running", "succeeded", "failed", "cancelled", "unknown"]
#: Called with a task's name and its new state.
type Listener = Callable[[str, State], None]
#: States in which a job still uses, or may still use, the cluster.
ALIVE: frozenset[State] = frozenset({"submitted", "pending", "running", "unknown"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskResult:
    """Result of one task."""

    name: str  #: build, check or train
    executor: str  #: its kind
    state: State  #: as far as this process knows it
    job: str = ""  #: the scheduler's job id; empty before submission
    log: str = ""  #: file or folder of its output; empty if only nemo-run can fetch it
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


class LaunchInterrupt(KeyboardInterrupt):
    """The launch was interrupted; its processes on this machine have been ended.

    Attributes:
        result: the state of each task.
        code: exit code of a command that was interrupted so: 130, 143 by SIGTERM, 129 by SIGHUP.
    """

    def __init__(self, result: LaunchResult, code: int = 130) -> None:
        super().__init__("interrupted")
        self.result, self.code = result, code
