"""Every executor kind by name; defines the local ones: a process, torchrun, Docker."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from bridgepack.config.cluster.base import ExecutorSection, Facts, Launcher, TorchrunLauncher
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.config.cluster.values import Count, FreeForm, Switch, Text, Volume, hide_secrets, is_inside, is_word
from bridgepack.config.errors import quote

#: Classes with their own kind.
TYPED = MappingProxyType({"LocalExecutor": "local", "DockerExecutor": "docker", "SlurmExecutor": "slurm"})
SKYPILOT = frozenset({"SkypilotExecutor", "SkypilotJobsExecutor"})
#: Classes that always start one process per GPU of a node, whatever the file sets.
ONE_FOR_EACH_GPU = frozenset({"DGXCloudExecutor", "LeptonExecutor"})
_NODES_AND_GPUS = Facts(class_name="", title="", nodes="nodes", processes="nprocs_per_node", gpus="gpus_per_node")
_SKYPILOT = Facts(
    class_name="SkypilotExecutor",
    title="a cluster that SkyPilot creates",
    extra="skypilot",
    packagers=("git_archive",),
    nodes="num_nodes",
    processes="torchrun_nproc_per_node",
    gpus="gpus_per_node",
    gpu_only=("gpus", "instance_type", "network_tier"),
)
#: Facts about classes besides their signatures, by the short name that is also a `kind`.
KNOWN: Mapping[str, Facts] = MappingProxyType(
    {
        "skypilot": _SKYPILOT,
        "skypilot_jobs": replace(_SKYPILOT, class_name="SkypilotJobsExecutor", title="managed jobs of SkyPilot"),
        "kubeflow": replace(
            _NODES_AND_GPUS,
            class_name="KubeflowExecutor",
            title="TrainJobs of Kubeflow Trainer 2.1 on Kubernetes",
            extra="kubeflow",
            packagers=("none",),
            nodes="num_nodes",
            needs=("image", "workdir_pvc"),
            shell_paths=("workdir_pvc_path",),
            exports_env_vars=True,
        ),
        "dgxcloud": replace(
            _NODES_AND_GPUS,
            class_name="DGXCloudExecutor",
            title="workloads of DGX Cloud",
            job_folder="pvc_nemo_run_dir",
            shell_paths=("pvc_nemo_run_dir",),
            exports_env_vars=True,
        ),
        "lepton": replace(
            _NODES_AND_GPUS,
            class_name="LeptonExecutor",
            title="jobs of DGX Cloud Lepton",
            launchers=("none", "torchrun"),
            needs=("resource_shape", "node_group"),
            job_folder="nemo_run_dir",
            shell_paths=("nemo_run_dir",),
        ),
    }
)
_OF_CLASS = {facts.class_name: facts for facts in KNOWN.values()}
#: Field names of unknown classes for nodes, processes per node and GPUs per node.
_NODES = ("nodes", "num_nodes")
_PROCESSES = ("nprocs_per_node", "ntasks_per_node", "torchrun_nproc_per_node")
_GPUS = ("gpus_per_node", "num_gpus")
#: Fields with volumes, and the keys of the mount path; the first that exists counts.
_VOLUMES = ("volume_mounts", "pvcs", "mounts")
_MOUNTED_AT = ("mountPath", "mount_path", "path")


class NemoRunExecutor(ExecutorSection):
    """Any other executor of nemo-run. All further fields are passed to its class under the same names.

    Commands among them, such as SkyPilot's `setup` or Lepton's `pre_launch_commands`, run on the nodes as they are.
    """

    model_config = ConfigDict(extra="allow")

    kind: Literal["nemo_run", "skypilot", "skypilot_jobs", "kubeflow", "dgxcloud", "lepton"]
    """`nemo_run`, with `class`; the other kinds are short for `nemo_run` with that class."""
    class_: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")] | None = Field(
        default=None,
        alias="class",
        description="Class of the executor: its name in nemo_run, e.g. `SkypilotExecutor`, or a dotted path, e.g. "
        "`mypackage.MyExecutor`.",
    )
    launcher: Launcher = TorchrunLauncher(kind="torchrun")

    @property
    def facts(self) -> Facts:
        """Facts about the class; for an unknown class, the names of its fields in the file."""
        facts = self._known_facts()
        if facts is not None:
            return facts
        nodes, processes, gpus = (
            next((name for name in names if name in self.fields), names[0]) for names in (_NODES, _PROCESSES, _GPUS)
        )
        return Facts(class_name=self.class_ or "", title="", nodes=nodes, processes=processes, gpus=gpus)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The class's fields that the file sets."""
        return self.model_extra or {}

    def _known_facts(self) -> Facts | None:
        return KNOWN.get(self.kind) if self.class_ is None else _OF_CLASS.get(self.class_)

    def _mounted_paths(self) -> tuple[str, ...]:
        """Return the mount paths of volumes."""
        # another type than the class takes is refused later, by its signature
        mounts = chain.from_iterable(entries for name in _VOLUMES if isinstance(entries := self.value(name), list))
        volumes = [volume for volume in mounts if isinstance(volume, Mapping)]
        places = [next((volume[name] for name in _MOUNTED_AT if name in volume), None) for volume in volumes]
        return tuple(map(str, filter(None, places)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        if self.kind == "nemo_run" and self.class_ is None:
            names = ", ".join(_OF_CLASS)
            yield f"class is missing; allowed: a name in nemo_run, e.g. {names}, or a dotted path. Set it."
        if self.kind != "nemo_run" and self.class_ is not None:
            short = f"kind {self.kind} is short for {KNOWN[self.kind].class_name}"
            yield f"class is {self.class_}, and {short}. Write kind: nemo_run."
        if self.class_ is not None and self.class_ in TYPED:
            yield f"class is {self.class_}; it has a kind of its own. Write kind: {TYPED[self.class_]}."
        facts = self.facts
        for name in facts.needs:
            if not self.value(name):
                yield (
                    f"{name} is missing; a launch with {facts.class_name} needs it. Set it in the cluster file or with "
                    f"--cluster-set executor.{name}=VALUE."
                )
        for name, least in ((facts.nodes, 1), (facts.processes, 1), (facts.gpus, 0)):
            count = self.value(name)
            if count is not None and (type(count) is not int or count < least):
                yield f"{name} is {quote(count)}; allowed: a whole number, at least {least}. Correct it."
        for name in facts.shell_paths:
            path = self.value(name)
            if path is not None and not is_word(str(path)):
                yield (
                    f"{name} is {quote(path)}; nemo-run writes it unquoted into a shell script; allowed: one word "
                    "without characters of the shell. Rename it."
                )
        folder, paths = self.value(facts.job_folder), self._mounted_paths()
        if folder is not None and not any(is_inside(str(folder), path) for path in paths):
            # otherwise nemo-run cannot copy the files of the jobs
            yield (
                f"{facts.job_folder} is {folder!r}; allowed: a folder on a volume of the cluster file "
                f"({', '.join(paths) or 'it has none'}). Add the volume that holds it."
            )

    def __repr_args__(self) -> Any:
        """Return what repr shows: everything except secrets."""
        return hide_secrets(dict(super().__repr_args__())).items()


_LOCAL = Facts(
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

    FACTS: ClassVar[Facts] = replace(_LOCAL, title="one process on this machine")

    kind: Literal["local"]


class TorchrunExecutor(LocalFields):
    """torchrun on this machine: one process per GPU of the recipe."""

    FACTS: ClassVar[Facts] = replace(_LOCAL, launchers=("torchrun", "fault_tolerance"))

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
