"""What every executor section shares: value types, the fields of nemo-run's Executor, what a kind tells of itself."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from bridgepack.config.cluster.launchers import Launcher, NoLauncher
from bridgepack.config.cluster.packagers import NoPackager, Packager
from bridgepack.config.section import Section

Task = Literal["build", "check", "train"]
TASKS: tuple[Task, ...] = ("build", "check", "train")

Count = Annotated[int, Field(ge=1, strict=True)]
NotNegative = Annotated[int, Field(ge=0, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(min_length=1)]
#: Text that people also write as a number, e.g. a memory size or a job id.
TextOrNumber = Annotated[
    str,
    Field(min_length=1, coerce_numbers_to_str=True),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "number"}]}),
]
#: A mapping that the platform reads, passed on as it is.
FreeForm = dict[str, Any]
EnvironmentVariables = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
    Annotated[
        str,
        Field(min_length=0, coerce_numbers_to_str=True),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
    ],
]


class ExecutorSection(Section):
    """Fields that every executor of nemo-run has."""

    #: The class of nemo-run that the section becomes.
    NEMO_RUN_CLASS: ClassVar[str] = ""
    #: What the kind is, for people.
    TITLE: ClassVar[str] = ""
    #: The extra of nemo-run that brings what the kind needs besides nemo-run itself.
    NEMO_RUN_EXTRA: ClassVar[str | None] = None
    #: Launchers that have an effect; nemo-run ignores others in silence or fails.
    LAUNCHERS: ClassVar[tuple[str, ...]] = ("none", "torchrun", "fault_tolerance")
    #: Packagers that nemo-run accepts.
    PACKAGERS: ClassVar[tuple[str, ...]] = ("none", "git_archive", "pattern", "hybrid")
    #: Fields that say how many nodes and how many processes and GPUs on each, in this order; "" for none.
    NODES_FIELD: ClassVar[str] = ""
    PROCESSES_FIELD: ClassVar[str] = ""
    GPUS_FIELD: ClassVar[str] = ""
    #: Fields about GPUs that a task without GPUs leaves out.
    GPU_ONLY_FIELDS: ClassVar[tuple[str, ...]] = ()
    #: Whether nemo-run writes env_vars into a shell script, unquoted.
    EXPORTS_ENV_VARS: ClassVar[bool] = False
    #: Why no launch can use the kind, or "".
    NO_LAUNCH: ClassVar[str] = ""

    packager: Packager = NoPackager()
    """How the code of this folder reaches the nodes; `none` where the image or the environment there has it."""
    launcher: Launcher = NoLauncher()
    """What starts the processes of the training task on a node. `build` and `check` are one process; for them torchrun
    and fault_tolerance are left out unless `tasks` sets a launcher."""
    env_vars: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the tasks. `${env:NAME}` takes the value from the environment of the launching command;
    use it for secrets."""
    retries: NotNegative = 0
    """Times that a failed task is started again."""

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the folders that a container of a task shares with the outside, or None when all are shared."""
        return None
