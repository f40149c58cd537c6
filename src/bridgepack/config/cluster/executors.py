"""Every executor kind by name; defines the local ones: a process, torchrun, Docker."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bridgepack.config.cluster.base import ExecutorSection, Facts
from bridgepack.config.cluster.general import KNOWN, NemoRunExecutor
from bridgepack.config.cluster.launchers import Launcher, TorchrunLauncher
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.config.cluster.values import Count, FreeForm, Switch, Text, Volume

_FACTS = Facts(
    class_name="LocalExecutor",
    title="torchrun on this machine",
    packagers=("none",),
    nodes="nodes",
    processes="ntasks_per_node",
)


class LocalFields(ExecutorSection):
    """Fields of both local executors."""

    ntasks_per_node: Count | None = None
    """Processes that torchrun starts; by default one per GPU of the recipe, without torchrun one."""
    nodes: Count | None = None
    """Machines that torchrun waits for; by default 1. With more, start the launch on each of them, with MASTER_ADDR,
    MASTER_PORT and NODE_RANK set."""


class LocalExecutor(LocalFields):
    """Processes on this machine; without a launcher, one process per task."""

    FACTS: ClassVar[Facts] = replace(_FACTS, title="one process on this machine")

    kind: Literal["local"]


class TorchrunExecutor(LocalFields):
    """torchrun on this machine: one process per GPU of the recipe."""

    FACTS: ClassVar[Facts] = replace(_FACTS, launchers=("torchrun", "fault_tolerance"))

    kind: Literal["torchrun"]
    launcher: Launcher = TorchrunLauncher(kind="torchrun")


class DockerExecutor(ExecutorSection):
    """Containers on this machine."""

    FACTS: ClassVar[Facts] = Facts(
        class_name="DockerExecutor",
        title="Docker containers on this machine",
        processes="ntasks_per_node",
        gpus="num_gpus",
    )

    kind: Literal["docker"]
    launcher: Launcher = TorchrunLauncher(kind="torchrun")
    container_image: Text
    """Image of the container."""
    ntasks_per_node: Count | None = None
    """Processes that torchrun starts; by default one per GPU."""
    runtime: Text | None = None
    """Docker runtime, e.g. `nvidia`."""
    num_gpus: Annotated[int, Field(ge=-1, strict=True)] | None = None
    """GPUs of the container, -1 for all; by default those that the recipe needs. `build` and `check` get none."""
    shm_size: Text | None = None
    """Size of /dev/shm, e.g. `30g`."""
    ulimits: tuple[Text, ...] = ()
    """Resource limits: `TYPE=SOFT[:HARD]`, e.g. `memlock=-1`."""
    ipc_mode: Text | None = None
    """IPC namespace, e.g. `host`."""
    healthcheck: FreeForm = Field(default_factory=dict)
    """Health check, in docker-py's format."""
    privileged: Switch = False
    """Give the container extended privileges."""
    network: Text = "nemo_run"
    """Docker network; nemo-run creates one of this name. `host` uses the machine's network."""
    additional_kwargs: FreeForm = Field(default_factory=dict)
    """Further arguments of docker-py's `containers.run`."""
    volumes: tuple[Volume, ...] = ()
    """Host folders mounted into the container: `SOURCE:TARGET[:FLAGS]`, e.g. `/data:/data:ro`."""

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the targets of the volumes."""
        return tuple(volume.split(":")[1] for volume in self.volumes)


Executor = Annotated[
    LocalExecutor | TorchrunExecutor | DockerExecutor | SlurmExecutor | NemoRunExecutor, Field(discriminator="kind")
]
EXECUTORS: Mapping[str, type[ExecutorSection]] = MappingProxyType(
    {
        "local": LocalExecutor,
        "torchrun": TorchrunExecutor,
        "docker": DockerExecutor,
        "slurm": SlurmExecutor,
        "nemo_run": NemoRunExecutor,
    }
)
#: Facts about each kind, including those that are short for `nemo_run` with a class.
FACTS: Mapping[str, Facts] = MappingProxyType(
    {kind: section.FACTS for kind, section in EXECUTORS.items() if kind != "nemo_run"} | dict(KNOWN)
)
#: Kinds whose tasks are processes of this machine and see its files.
LOCAL_KINDS = frozenset({"local", "torchrun"})
