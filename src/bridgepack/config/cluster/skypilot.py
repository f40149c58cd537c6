"""The SkyPilot executors: clusters, and managed jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.base import Count, ExecutorSection, FreeForm, NotNegative, Switch, Text
from bridgepack.config.cluster.launchers import Launcher, TorchrunLauncher
from bridgepack.config.cluster.packagers import GitArchivePackager, Packager

_Texts = Text | Annotated[tuple[Text, ...], Field(min_length=1)]
_Numbers = (
    Annotated[int, Field(gt=0, strict=True)]
    | Annotated[float, Field(gt=0.0, strict=True)]
    | Annotated[tuple[Annotated[float, Field(gt=0.0)], ...], Field(min_length=1)]
)
_Counts = Count | Annotated[tuple[Count, ...], Field(min_length=1)]
_Switches = Switch | Annotated[tuple[Switch, ...], Field(min_length=1)]


class SkypilotFields(ExecutorSection):
    """What both executors of SkyPilot have. A list is one value for each candidate; `none` is no value."""

    NEMO_RUN_EXTRA: ClassVar[str | None] = "skypilot"
    PACKAGERS: ClassVar[tuple[str, ...]] = ("git_archive",)
    NODES_FIELD: ClassVar[str] = "num_nodes"
    PROCESSES_FIELD: ClassVar[str] = "torchrun_nproc_per_node"
    GPUS_FIELD: ClassVar[str] = "gpus_per_node"
    GPU_ONLY_FIELDS: ClassVar[tuple[str, ...]] = (
        *("num_nodes", "torchrun_nproc_per_node", "gpus", "gpus_per_node", "instance_type", "network_tier"),
    )

    packager: Packager = GitArchivePackager()
    """How the code of this folder reaches the nodes; nemo-run has only `git_archive` here."""
    launcher: Launcher = TorchrunLauncher()
    """What starts the processes of the training task. `build` and `check` are one process without a launcher."""
    container_image: Text | None = None
    """Image of the nodes, e.g. `docker:nvcr.io/nvidia/nemo:26.02`."""
    cloud: _Texts | None = None
    """Cloud; newer files say `infra`."""
    region: _Texts | None = None
    """Region of the cloud."""
    zone: _Texts | None = None
    """Zone of the region."""
    gpus: _Texts | None = None
    """Type of GPU, e.g. `H100`. `build` and `check` get none."""
    gpus_per_node: Count | None = None
    """GPUs of a node."""
    cpus: _Numbers | None = None
    """Cores of a node."""
    memory: _Numbers | None = None
    """Memory of a node, GiB."""
    instance_type: _Texts | None = None
    """Type of the machine, in the cloud's words. `build` and `check` leave it out."""
    num_nodes: Count | None = None
    """Nodes of the training task; by default as many as the recipe's GPUs fill."""
    use_spot: _Switches | None = None
    """Take machines that the cloud may take back."""
    disk_size: _Counts | None = None
    """Size of the disk, GB."""
    disk_tier: _Texts | None = None
    """Speed of the disk: `low`, `medium`, `high`, `ultra`, `best`."""
    ports: tuple[Text, ...] | None = None
    """Ports to open."""
    file_mounts: dict[Text, Text] | None = None
    """Path on the nodes -> file or folder here or in a bucket."""
    storage_mounts: dict[Text, FreeForm] | None = None
    """Path on the nodes -> a storage of SkyPilot: name, store, mode, persistent."""
    cluster_name: Text | None = None
    """Name of the cluster; by default that of the experiment, so that its tasks share one."""
    setup: Text | None = None
    """Shell lines that prepare a node."""
    autodown: Switch = False
    """Take the cluster down when it is idle."""
    idle_minutes_to_autostop: NotNegative | None = None
    """Minutes until an idle cluster is stopped."""
    torchrun_nproc_per_node: Count | None = None
    """Processes that torchrun starts on a node; by default one for each GPU."""
    cluster_config_overrides: dict[str, Any] | None = None
    """Changes of SkyPilot's own configuration for this cluster."""
    infra: Text | None = None
    """Where: `CLOUD/REGION/ZONE` or `k8s/CONTEXT`; instead of cloud, region and zone."""
    network_tier: Text | None = None
    """Speed of the network: `standard`, `best`."""
    retry_until_up: Switch = False
    """Try until there is a machine."""

    @model_validator(mode="after")
    def _check_one_place(self) -> Self:
        both = [name for name in ("cloud", "region", "zone") if getattr(self, name) is not None]
        if self.infra is not None and both:
            raise ValueError(
                f"infra is {self.infra!r} and {' and '.join(both)} {'is' if len(both) == 1 else 'are'} set too; "
                f"allowed: infra alone. Write the place as infra: CLOUD/REGION/ZONE and remove {', '.join(both)}."
            )
        return self

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the paths of the storages; without one the disk of a machine is all that a task has."""
        return tuple(self.storage_mounts or ()) or None


class SkypilotExecutor(SkypilotFields):
    """A cluster that SkyPilot makes in a cloud or on Kubernetes."""

    NEMO_RUN_CLASS: ClassVar[str] = "SkypilotExecutor"
    TITLE: ClassVar[str] = "a cluster that SkyPilot makes"

    kind: Literal["skypilot"] = "skypilot"
    """`skypilot`"""


class SkypilotJobsExecutor(SkypilotFields):
    """Jobs that SkyPilot's API server looks after, and moves when a machine is lost."""

    NEMO_RUN_CLASS: ClassVar[str] = "SkypilotJobsExecutor"
    TITLE: ClassVar[str] = "managed jobs of SkyPilot"

    kind: Literal["skypilot_jobs"] = "skypilot_jobs"
    """`skypilot_jobs`"""
