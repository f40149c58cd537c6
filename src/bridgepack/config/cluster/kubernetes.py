"""The Kubernetes executors: Kubeflow Trainer and KubeRay."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.base import Count, ExecutorSection, FreeForm, NotNegative, Switch, Text, TextOrNumber
from bridgepack.config.cluster.launchers import Launcher, TorchrunLauncher
from bridgepack.config.cluster.mounts import check_absolute
from bridgepack.config.section import Section

_Objects = tuple[FreeForm, ...]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-.]*[a-z0-9])*$", max_length=63)]
_Path = Annotated[str, check_absolute]


class KubeflowExecutor(ExecutorSection):
    """A TrainJob of Kubeflow Trainer 2.1 for each task; 2.0 and 2.2 have another form."""

    NEMO_RUN_CLASS: ClassVar[str] = "KubeflowExecutor"
    TITLE: ClassVar[str] = "TrainJobs of Kubeflow on Kubernetes"
    NEMO_RUN_EXTRA: ClassVar[str | None] = "kubeflow"
    PACKAGERS: ClassVar[tuple[str, ...]] = ("none",)
    NODES_FIELD: ClassVar[str] = "num_nodes"
    PROCESSES_FIELD: ClassVar[str] = "nprocs_per_node"
    GPUS_FIELD: ClassVar[str] = "gpus_per_node"
    GPU_ONLY_FIELDS: ClassVar[tuple[str, ...]] = ("num_nodes", "nprocs_per_node", "gpus_per_node")
    EXPORTS_ENV_VARS: ClassVar[bool] = True

    kind: Literal["kubeflow"] = "kubeflow"
    """`kubeflow`"""
    launcher: Launcher = TorchrunLauncher()
    """What starts the processes of the training task. `build` and `check` are one process without a launcher."""
    runtime_ref: Text = "torch-distributed"
    """ClusterTrainingRuntime of the cluster."""
    namespace: _Name = "default"
    """Namespace."""
    image: Text
    """Image of the containers."""
    num_nodes: Count | None = None
    """Pods of the training task; by default as many as the recipe's GPUs fill."""
    nprocs_per_node: Count | None = None
    """Processes in a pod; by default one for each GPU."""
    gpus_per_node: Count | None = None
    """GPUs of a pod. `build` and `check` get none."""
    cpu_requests: TextOrNumber | None = None
    """Cores that a pod asks for."""
    memory_requests: TextOrNumber | None = None
    """Memory that a pod asks for, e.g. `64Gi`."""
    cpu_limits: TextOrNumber | None = None
    """Most cores of a pod."""
    memory_limits: TextOrNumber | None = None
    """Most memory of a pod."""
    extra_resource_requests: dict[str, TextOrNumber] = Field(default_factory=dict)
    """More resources that a pod asks for, e.g. `{rdma/ib: 1}`."""
    extra_resource_limits: dict[str, TextOrNumber] = Field(default_factory=dict)
    """Most of these resources."""
    volume_mounts: _Objects = ()
    """Volumes in the container, as Kubernetes takes them: name, mountPath."""
    volumes: _Objects = ()
    """Volumes of the pod, as Kubernetes takes them."""
    labels: FreeForm = Field(default_factory=dict)
    """Labels of the TrainJob."""
    annotations: FreeForm = Field(default_factory=dict)
    """Annotations of the TrainJob."""
    pod_annotations: FreeForm = Field(default_factory=dict)
    """Annotations of the pods."""
    pod_labels: FreeForm = Field(default_factory=dict)
    """Labels of the pods."""
    tolerations: _Objects = ()
    """Taints that the pods bear."""
    affinity: FreeForm = Field(default_factory=dict)
    """Nodes that the pods like."""
    env_list: _Objects = ()
    """Environment variables as Kubernetes takes them, e.g. with `valueFrom: {secretKeyRef: ...}`; the place for
    secrets."""
    pod_spec_overrides: FreeForm = Field(default_factory=dict)
    """More fields of the pods' spec."""
    data_mover_image: Text = "alpine:3.19"
    """Image of the pod that copies the job's files to `workdir_pvc`."""
    restart_policy: Literal["OnFailure", "Never", "Always"] = "OnFailure"
    """When a container starts again. nemo-run 0.11 does not pass it on; the runtime's counts."""
    image_pull_secrets: tuple[Text, ...] = ()
    """Names of secrets for the registry."""
    spec_kwargs: FreeForm = Field(default_factory=dict)
    """More fields of the TrainJob's spec."""
    container_kwargs: FreeForm = Field(default_factory=dict)
    """More fields of the trainer."""
    workdir_pvc: _Name
    """PersistentVolumeClaim that carries the job's files to the pods; the recipe travels on it."""
    workdir_pvc_path: _Path = "/nemo_run"
    """Where that volume is mounted."""
    workdir_local_path: Text | None = None
    """Folder here that is copied along."""
    train_job_basename: Text | None = None
    """Start of the TrainJobs' names; by default the task's name."""

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return where volumes are mounted."""
        return (*_mount_paths(self.volume_mounts, "mountPath"), self.workdir_pvc_path)


class KubeRayWorkerGroup(Section):
    """Workers of a Ray cluster that are all alike."""

    group_name: Annotated[str, Field(pattern=r"^[a-z0-9]([-.]*[a-z0-9])+$", max_length=63)]
    """Name of the group."""
    replicas: NotNegative = 1
    """Workers."""
    min_replicas: NotNegative | None = None
    """Fewest workers; by default `replicas`."""
    max_replicas: NotNegative | None = None
    """Most workers; by default `replicas`."""
    gpus_per_worker: NotNegative | None = None
    """GPUs of a worker."""
    cpu_requests: TextOrNumber | None = None
    """Cores that a worker asks for."""
    memory_requests: TextOrNumber | None = None
    """Memory that a worker asks for."""
    cpu_limits: TextOrNumber | None = None
    """Most cores of a worker."""
    memory_limits: TextOrNumber | None = None
    """Most memory of a worker."""
    volume_mounts: _Objects = ()
    """Volumes in the container. Those of the executor replace them while `reuse_volumes_in_worker_groups` is true."""
    volumes: _Objects = ()
    """Volumes of the pod, with the same exception."""
    labels: FreeForm = Field(default_factory=dict)
    """Labels."""
    annotations: FreeForm = Field(default_factory=dict)
    """Annotations."""

    @model_validator(mode="after")
    def _check_replicas(self) -> Self:
        lower = self.replicas if self.min_replicas is None else self.min_replicas
        upper = self.replicas if self.max_replicas is None else self.max_replicas
        if not lower <= self.replicas <= upper:
            raise ValueError(
                f"replicas is {self.replicas}, min_replicas {lower} and max_replicas {upper}; allowed: replicas "
                f"between the two. Correct them."
            )
        return self


class KubeRayExecutor(ExecutorSection):
    """A Ray cluster on Kubernetes, for `nemo_run.run.ray`; nemo-run's experiments, and so launches, cannot use it."""

    NEMO_RUN_CLASS: ClassVar[str] = "KubeRayExecutor"
    TITLE: ClassVar[str] = "a Ray cluster on Kubernetes, outside launches"
    NEMO_RUN_EXTRA: ClassVar[str | None] = "ray"
    LAUNCHERS: ClassVar[tuple[str, ...]] = ("none",)
    PACKAGERS: ClassVar[tuple[str, ...]] = ("none",)
    NO_LAUNCH: ClassVar[str] = "nemo-run 0.11 starts Ray clusters with its RayCluster and RayJob, not in an experiment"

    kind: Literal["kuberay"] = "kuberay"
    """`kuberay`"""
    namespace: _Name = "default"
    """Namespace."""
    ray_version: TextOrNumber = "2.43.0"
    """Version of Ray."""
    image: str = Field(default="", min_length=0)
    """Image of the pods; by default `rayproject/ray:RAY_VERSION`."""
    head_cpu: TextOrNumber = "1"
    """Cores of the head."""
    head_memory: TextOrNumber = "2Gi"
    """Memory of the head."""
    ray_head_start_params: FreeForm = Field(default_factory=dict)
    """Parameters of `ray start` on the head."""
    ray_worker_start_params: FreeForm = Field(default_factory=dict)
    """Parameters of `ray start` on the workers."""
    worker_groups: tuple[KubeRayWorkerGroup, ...] = ()
    """Groups of workers."""
    labels: FreeForm = Field(default_factory=dict)
    """Labels of the Ray cluster."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the head's service."""
    head_ports: _Objects = ()
    """Ports of the head, as Kubernetes takes them."""
    volume_mounts: _Objects = ()
    """Volumes in the containers."""
    volumes: _Objects = ()
    """Volumes of the pods."""
    reuse_volumes_in_worker_groups: Switch = True
    """Give every group of workers these volumes."""
    spec_kwargs: FreeForm = Field(default_factory=dict)
    """More fields of the pods' spec."""
    container_kwargs: FreeForm = Field(default_factory=dict)
    """More fields of the containers."""
    lifecycle_kwargs: FreeForm = Field(default_factory=dict)
    """More fields of the containers' lifecycle."""

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return where volumes are mounted."""
        return _mount_paths(self.volume_mounts, "mountPath")


def _mount_paths(mounts: tuple[dict[str, Any], ...], field: str) -> tuple[str, ...]:
    return tuple(str(mount[field]) for mount in mounts if field in mount)
