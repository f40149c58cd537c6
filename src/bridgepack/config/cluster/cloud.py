"""The hosted executors: DGX Cloud (Run:ai) and Lepton."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.base import Count, ExecutorSection, FreeForm, NotNegative, Switch, Text
from bridgepack.config.cluster.launchers import Launcher, TorchrunLauncher
from bridgepack.config.cluster.mounts import check_absolute, is_inside

_Path = Annotated[str, check_absolute]
_Url = Annotated[str, Field(pattern=r"^(https?://|\$\{env:)")]
_MaybeEmpty = Annotated[str, Field(min_length=0)]


class DGXCloudExecutor(ExecutorSection):
    """Workloads of DGX Cloud, through the interface of Run:ai."""

    NEMO_RUN_CLASS: ClassVar[str] = "DGXCloudExecutor"
    TITLE: ClassVar[str] = "workloads of DGX Cloud"
    NODES_FIELD: ClassVar[str] = "nodes"
    PROCESSES_FIELD: ClassVar[str] = "nprocs_per_node"
    GPUS_FIELD: ClassVar[str] = "gpus_per_node"
    GPU_ONLY_FIELDS: ClassVar[tuple[str, ...]] = ("nodes", "nprocs_per_node", "gpus_per_node")
    EXPORTS_ENV_VARS: ClassVar[bool] = True

    kind: Literal["dgxcloud"] = "dgxcloud"
    """`dgxcloud`"""
    launcher: Launcher = TorchrunLauncher()
    """What starts the processes of the training task. `build` and `check` are one process without a launcher."""
    base_url: _Url
    """Address of the interface, e.g. `https://ORGANISATION.run.ai/api/v1`."""
    kube_apiserver_url: _Url
    """Address of the cluster's Kubernetes."""
    client_id: Text
    """Id of the application."""
    client_secret: Annotated[str, Field(min_length=1, repr=False)]
    """Secret of the application; write `${env:NAME}`."""
    project_name: Text
    """Project."""
    container_image: Text
    """Image of the containers."""
    pvc_nemo_run_dir: _Path
    """Folder of the jobs on a volume of `pvcs`."""
    launched_from_cluster: Switch = False
    """The launching machine already sees the volume, so nothing is copied."""
    nodes: Count | None = None
    """Nodes of the training task; by default as many as the recipe's GPUs fill."""
    gpus_per_node: NotNegative | None = None
    """GPUs of a node. `build` and `check` get none."""
    nprocs_per_node: Count | None = None
    """Processes on a node without GPUs; with GPUs one for each of them."""
    pvcs: tuple[FreeForm, ...] = ()
    """Volumes, as the interface takes them: path, existingPvc, claimName, ..."""
    distributed_framework: Text = "PyTorch"
    """Kind of a workload with several nodes."""
    custom_spec: FreeForm = Field(default_factory=dict)
    """More fields of the workload's spec."""
    MAX_ARGS_CHARS: Count = 9500
    """Longest command, characters, with which files are copied in one piece."""

    @model_validator(mode="after")
    def _check_volumes(self) -> Self:
        paths = _paths(self.pvcs, ("path",), "pvcs")
        if not any(is_inside(self.pvc_nemo_run_dir, path) for path in paths):
            raise ValueError(
                f"pvc_nemo_run_dir is {self.pvc_nemo_run_dir!r}; it lies on no volume of pvcs "
                f"({', '.join(paths) or 'there is none'}). Add the volume, e.g. pvcs: [{{path: "
                f"{self.pvc_nemo_run_dir}, existingPvc: true, claimName: NAME}}]."
            )
        return self

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the paths of the volumes."""
        return _paths(self.pvcs, ("path",), "pvcs")


class LeptonExecutor(ExecutorSection):
    """Jobs of DGX Cloud Lepton; the token is the one that `lep login` saved or that LEPTON_* variables tell."""

    NEMO_RUN_CLASS: ClassVar[str] = "LeptonExecutor"
    TITLE: ClassVar[str] = "jobs of DGX Cloud Lepton"
    LAUNCHERS: ClassVar[tuple[str, ...]] = ("none", "torchrun")
    NODES_FIELD: ClassVar[str] = "nodes"
    PROCESSES_FIELD: ClassVar[str] = "nprocs_per_node"
    GPUS_FIELD: ClassVar[str] = "gpus_per_node"
    GPU_ONLY_FIELDS: ClassVar[tuple[str, ...]] = ("nodes", "nprocs_per_node", "gpus_per_node")

    kind: Literal["lepton"] = "lepton"
    """`lepton`"""
    launcher: Launcher = TorchrunLauncher()
    """What starts the processes of the training task. `build` and `check` are one process without a launcher."""
    container_image: Text
    """Image of the containers."""
    nemo_run_dir: _Path
    """Folder of the jobs on a volume of `mounts`."""
    launched_from_cluster: Switch = False
    """The launching machine is on the cluster."""
    nodes: Count | None = None
    """Nodes of the training task; by default as many as the recipe's GPUs fill."""
    gpus_per_node: NotNegative | None = None
    """GPUs of a node, as many as `resource_shape` has."""
    nprocs_per_node: Count | None = None
    """Processes on a node without GPUs; with GPUs one for each of them."""
    shared_memory_size: NotNegative = 65536
    """Size of /dev/shm, MiB."""
    resource_shape: Text
    """Shape of a node, e.g. `gpu.8xh100-80gb`. For `build` and `check` set one without GPUs under `tasks`."""
    node_group: Text
    """Node group."""
    node_reservation: _MaybeEmpty = ""
    """Reservation."""
    secret_vars: dict[str, Text] = Field(default_factory=dict)
    """Environment variable -> name of a secret that the workspace keeps; the place for secrets."""
    mounts: tuple[FreeForm, ...] = ()
    """Volumes, as Lepton takes them: path, mount_path, from."""
    image_pull_secrets: tuple[Text, ...] = ()
    """Names of secrets for the registry."""
    custom_spec: FreeForm = Field(default_factory=dict)
    """More fields of the job's spec."""
    pre_launch_commands: tuple[Text, ...] = ()
    """Shell lines before the task."""
    head_resource_shape: _MaybeEmpty | None = ""
    """Shape of the head of a Ray cluster."""
    ray_version: Text | None = None
    """Version of Ray of a Ray cluster."""
    can_be_preempted: Switch = False
    """Jobs of higher priority may take the nodes."""
    can_preempt: Switch = False
    """The job may take the nodes of others."""
    queue_priority: Text | None = None
    """Priority, e.g. `mid-4000`; counts with one of the two above."""

    @model_validator(mode="after")
    def _check_volumes(self) -> Self:
        paths = _paths(self.mounts, ("mount_path", "path"), "mounts")
        if not any(is_inside(self.nemo_run_dir, path) for path in paths):
            raise ValueError(
                f"nemo_run_dir is {self.nemo_run_dir!r}; it lies on no volume of mounts "
                f"({', '.join(paths) or 'there is none'}). Add the volume, e.g. mounts: [{{path: /, mount_path: "
                f"{self.nemo_run_dir}, from: 'node-nfs:NAME'}}]."
            )
        return self

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return where the volumes are mounted."""
        return _paths(self.mounts, ("mount_path", "path"), "mounts")


def _paths(mounts: tuple[dict[str, Any], ...], fields: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the first of `fields` of each mount.

    Raises:
        ValueError: a mount lacks one of the fields.
    """
    for index, mount in enumerate(mounts):
        missing = [field for field in fields if not isinstance(mount.get(field), str) or not mount[field]]
        if missing:
            raise ValueError(f"{name}.{index} has no {' and no '.join(missing)}; every volume needs one. Add it.")
    return tuple(mount[fields[0]] for mount in mounts)
