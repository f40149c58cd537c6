"""What every executor section shares: the fields of nemo-run's Executor, what a kind tells of itself."""

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
    """What launches know of a class of nemo-run's."""

    class_name: str  #: its name in nemo_run, or its dotted path
    title: str  #: what it is, for people
    extra: str | None = None  #: of nemo-run, with what the class needs besides nemo-run itself; or None
    #: kinds that have an effect; nemo-run ignores others in silence or fails
    launchers: tuple[str, ...] = ("none", "torchrun", "fault_tolerance")
    packagers: tuple[str, ...] = ("none", "git_archive", "pattern", "hybrid")  #: kinds that nemo-run accepts
    nodes: str = ""  #: field that says how many nodes; "" for none
    processes: str = ""  #: field that says how many processes on each
    gpus: str = ""  #: field that says how many GPUs on each
    gpu_only: tuple[str, ...] = ()  #: more fields that a task without GPUs leaves out
    needs: tuple[str, ...] = ()  #: fields without which a launch cannot work, besides those that the class itself needs
    job_folder: str = ""  #: field with the folder of the jobs, which lies on a volume; "" for none
    exports_env_vars: bool = False  #: whether nemo-run writes env_vars into a shell script, unquoted
    no_launch: str = ""  #: why no launch can use it, or ""

    @property
    def counts(self) -> frozenset[str]:
        """The fields that say how many nodes, processes and GPUs."""
        return frozenset({self.nodes, self.processes, self.gpus}) - {""}


class ExecutorSection(Section):
    """Fields that every executor of nemo-run has."""

    #: What launches know of the class of nemo-run that the section becomes.
    FACTS: ClassVar[Facts]

    packager: Packager = NoPackager(kind="none")
    """How the code of this folder reaches the nodes; `none` where the image or the environment there has it."""
    launcher: Launcher = NoLauncher(kind="none")
    """What starts the processes of the training task on a node. `build` and `check` are one process; for them torchrun
    and fault_tolerance are left out unless `tasks` sets a launcher."""
    env_vars: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the tasks. `${env:NAME}` takes the value from the environment of the launching command;
    use it for secrets."""
    retries: NotNegative = 0
    """Times that a failed task is started again."""

    @property
    def facts(self) -> Facts:
        """What launches know of the class."""
        return self.FACTS

    @property
    def title(self) -> str:
        """The kind, for people; for any class of nemo-run's its name."""
        kind: str = self.value("kind")
        return self.facts.class_name.rpartition(".")[2] if kind == "nemo_run" else kind

    def value(self, name: str) -> Any:
        """Return what a field says; None where it says nothing, or there is none of that name."""
        return getattr(self, name, None) if name else None

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the folders that a container of a task shares with the outside, or None when all are shared."""
        return None
