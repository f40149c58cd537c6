"""Every kind of executor, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from bridgepack.config.cluster.base import ExecutorSection
from bridgepack.config.cluster.cloud import DGXCloudExecutor, LeptonExecutor
from bridgepack.config.cluster.kubernetes import KubeflowExecutor, KubeRayExecutor
from bridgepack.config.cluster.machine import DockerExecutor, LocalExecutor, TorchrunExecutor
from bridgepack.config.cluster.skypilot import SkypilotExecutor, SkypilotJobsExecutor
from bridgepack.config.cluster.slurm import SlurmExecutor

Executor = Annotated[
    LocalExecutor
    | TorchrunExecutor
    | DockerExecutor
    | SlurmExecutor
    | SkypilotExecutor
    | SkypilotJobsExecutor
    | KubeflowExecutor
    | KubeRayExecutor
    | DGXCloudExecutor
    | LeptonExecutor,
    Field(discriminator="kind"),
]
EXECUTORS: Mapping[str, type[ExecutorSection]] = MappingProxyType(
    {
        "local": LocalExecutor,
        "torchrun": TorchrunExecutor,
        "docker": DockerExecutor,
        "slurm": SlurmExecutor,
        "skypilot": SkypilotExecutor,
        "skypilot_jobs": SkypilotJobsExecutor,
        "kubeflow": KubeflowExecutor,
        "kuberay": KubeRayExecutor,
        "dgxcloud": DGXCloudExecutor,
        "lepton": LeptonExecutor,
    }
)
#: Kinds whose tasks are processes of this machine, and see its files.
LOCAL_KINDS = frozenset({"local", "torchrun"})
