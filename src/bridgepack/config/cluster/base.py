"""What every executor section shares: the fields of nemo-run's Executor, and facts about each kind."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from bridgepack.config.cluster.launchers import Launcher, NoLauncher
from bridgepack.config.cluster.packagers import NoPackager, Packager
from bridgepack.config.cluster.values import EnvironmentVariables, NotNegative
from bridgepack.config.section import Section

Task = Literal["build", "check", "train"]
TASKS: tuple[Task, ...] = ("build", "check", "train")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What launches need to know about an executor class of nemo-run."""

    class_name: str  #: its name in nemo_run, or its dotted path
    title: str  #: short description for messages
    extra: str | None = None  #: extra of nemo-run that the class needs, or None
    #: launcher kinds that have an effect; nemo-run silently ignores the others, or fails
    launchers: tuple[str, ...] = ("none", "torchrun", "fault_tolerance")
    packagers: tuple[str, ...] = ("none", "git_archive", "pattern", "hybrid")  #: kinds that nemo-run accepts
    nodes: str = ""  #: field with the number of nodes; "" for none
    processes: str = ""  #: field with the processes per node
    gpus: str = ""  #: field with the GPUs per node
    gpu_only: tuple[str, ...] = ()  #: further fields to omit for a task without GPUs
    needs: tuple[str, ...] = ()  #: fields that a launch requires, besides those that the class itself requires
    job_folder: str = ""  #: field with the folder of the jobs, which must be on a volume; "" for none
    exports_env_vars: bool = False  #: nemo-run writes env_vars unquoted into a shell script
    no_launch: str = ""  #: why launches cannot use it, or ""

    @property
    def counts(self) -> frozenset[str]:
        """The fields with the numbers of nodes, processes and GPUs."""
        return frozenset({self.nodes, self.processes, self.gpus}) - {""}


class ExecutorSection(Section):
    """Fields that every executor of nemo-run has."""

    #: Facts about the nemo-run class that the section becomes.
    FACTS: ClassVar[Facts]

    packager: Packager = NoPackager(kind="none")
    """How the code in this folder reaches the nodes; `none` if the image or environment there already has it."""
    launcher: Launcher = NoLauncher(kind="none")
    """What starts the processes of the training task on a node. `build` and `check` are one process each and run
    without torchrun and fault_tolerance unless `tasks` sets a launcher."""
    env_vars: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the tasks. `${env:NAME}` is replaced by that variable of the launching shell; use it for
    secrets."""
    retries: NotNegative = 0
    """Maximum number of restarts of a failed task."""

    @property
    def facts(self) -> Facts:
        """Facts about the nemo-run class."""
        return self.FACTS

    @property
    def title(self) -> str:
        """The kind as messages name it; for other nemo-run classes the class name."""
        kind: str = self.value("kind")
        return self.facts.class_name.rpartition(".")[2] if kind == "nemo_run" else kind

    def value(self, name: str) -> Any:
        """Return the value of a field; None if it is not set or does not exist."""
        return getattr(self, name, None) if name else None

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the folders that a task's container shares with its host, or None if it shares all."""
        return None
