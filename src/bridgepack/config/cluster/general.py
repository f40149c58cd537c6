"""nemo-run executors without a kind of their own: the fields are those of the class, checked at the launch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from bridgepack.config.cluster.base import ExecutorSection, Facts
from bridgepack.config.cluster.launchers import Launcher, TorchrunLauncher
from bridgepack.config.cluster.references import hide_secrets
from bridgepack.config.cluster.values import is_inside
from bridgepack.config.errors import shown

#: Classes with their own kind.
TYPED = MappingProxyType({"LocalExecutor": "local", "DockerExecutor": "docker", "SlurmExecutor": "slurm"})
SKYPILOT = frozenset({"SkypilotExecutor", "SkypilotJobsExecutor"})
#: Classes that always start one process per GPU of a node, whatever the file sets.
ONE_FOR_EACH_GPU = frozenset({"DGXCloudExecutor", "LeptonExecutor"})
_FACTS = Facts(class_name="", title="", nodes="nodes", processes="nprocs_per_node", gpus="gpus_per_node")
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
            _FACTS,
            class_name="KubeflowExecutor",
            title="TrainJobs of Kubeflow Trainer 2.1 on Kubernetes",
            extra="kubeflow",
            packagers=("none",),
            nodes="num_nodes",
            needs=("image", "workdir_pvc"),
            exports_env_vars=True,
        ),
        "kuberay": Facts(
            class_name="nemo_run.core.execution.kuberay.KubeRayExecutor",
            title="a Ray cluster on Kubernetes, outside launches",
            extra="ray",
            packagers=("none",),
            no_launch="nemo-run 0.11 starts Ray clusters with its RayCluster and RayJob, not in an experiment",
        ),
        "dgxcloud": replace(
            _FACTS,
            class_name="DGXCloudExecutor",
            title="workloads of DGX Cloud",
            job_folder="pvc_nemo_run_dir",
            exports_env_vars=True,
        ),
        "lepton": replace(
            _FACTS,
            class_name="LeptonExecutor",
            title="jobs of DGX Cloud Lepton",
            launchers=("none", "torchrun"),
            needs=("resource_shape", "node_group"),
            job_folder="nemo_run_dir",
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
    """Any other executor of nemo-run. All further fields are passed to its class under the same names."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["nemo_run", "skypilot", "skypilot_jobs", "kubeflow", "kuberay", "dgxcloud", "lepton"]
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
        known = self._known()
        if known is not None:
            return known
        nodes, processes, gpus = (
            next((name for name in names if name in self.fields), names[0]) for names in (_NODES, _PROCESSES, _GPUS)
        )
        return Facts(class_name=self.class_ or "", title="", nodes=nodes, processes=processes, gpus=gpus)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The class's fields that the file sets."""
        return self.model_extra or {}

    def _known(self) -> Facts | None:
        return KNOWN.get(self.kind) if self.class_ is None else _OF_CLASS.get(self.class_)

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the mount paths of volumes; None if no known field tells them."""
        if self.facts.class_name in SKYPILOT:
            return tuple(self.value("storage_mounts") or ()) or None  # without them a task has only its machine's disk
        volumes = [volume for name in _VOLUMES for volume in self.value(name) or () if isinstance(volume, Mapping)]
        found = [next((volume[name] for name in _MOUNTED_AT if name in volume), None) for volume in volumes]
        if self.facts.class_name == "KubeflowExecutor":
            found.append(self.value("workdir_pvc_path") or "/nemo_run")
        return tuple(map(str, filter(None, found))) if self._known() else None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for fault in self._faults():
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        if self.kind == "nemo_run" and self.class_ is None:
            known = ", ".join(_OF_CLASS)
            yield f"class is missing; allowed: a name in nemo_run, e.g. {known}, or a dotted path. Set it."
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
                yield f"{name} is {shown(count)}; allowed: a whole number, at least {least}. Correct it."
        folder, paths = self.value(facts.job_folder), self.paths_on_nodes() or ()
        if folder is not None and not any(is_inside(str(folder), path) for path in paths):
            # otherwise nemo-run cannot copy the files of the jobs
            yield (
                f"{facts.job_folder} is {folder!r}; it is on no volume ({', '.join(paths) or 'there is none'}). "
                f"Add the volume that holds it."
            )

    def __repr_args__(self) -> Any:
        """Return what repr shows: everything except secrets."""
        return hide_secrets(dict(super().__repr_args__())).items()
