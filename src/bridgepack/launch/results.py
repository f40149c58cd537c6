"""What came of a launch: the state of each task, where its log is, what is still running."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from bridgepack.records.results import Result

State = Literal["not started", "submitted", "pending", "running", "succeeded", "failed", "cancelled", "unknown"]
#: Is told of a task that has come to a state.
type Listener = Callable[[str, State], None]
#: States in which a job still needs, or may still need, the cluster.
ALIVE: frozenset[State] = frozenset({"submitted", "pending", "running", "unknown"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskResult:
    """One task after a launch."""

    name: str  #: build, check or train
    executor: str  #: its kind
    state: State  #: as far as this process knows it
    job: str = ""  #: id of the job, as the scheduler has it; empty before it is submitted
    log: str = ""  #: file or folder of its output; empty where only nemo-run can fetch it
    seconds: float | None = None  #: between its submission and its end; None where it has not ended


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchResult(Result):
    """What came of a launch."""

    DERIVED: ClassVar = ("has_failed",)
    TABLE: ClassVar = "tasks"

    run_name: str  #: name of the run, and id of nemo-run's experiment
    run_folder: str  #: folder of the run, as the tasks see it
    experiment_folder: str  #: nemo-run's folder of the experiment on this machine
    tasks: tuple[TaskResult, ...]  #: in order
    is_detached: bool = False  #: the tasks go on without this process

    @property
    def has_failed(self) -> bool:
        """A task did not succeed; one that goes on without this process has not failed."""
        return any(task.state != "succeeded" and not (self.is_detached and task.state in ALIVE) for task in self.tasks)

    @property
    def alive(self) -> tuple[TaskResult, ...]:
        """Tasks that were submitted and have not ended."""
        return tuple(task for task in self.tasks if task.state in ALIVE)


class LaunchInterrupt(KeyboardInterrupt):
    """A launch that was interrupted; what ran on this machine has been ended.

    Attributes:
        result: the state of each task.
    """

    def __init__(self, result: LaunchResult) -> None:
        super().__init__("interrupted")
        self.result = result
