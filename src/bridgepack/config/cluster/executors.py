"""Every kind of executor, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from bridgepack.config.cluster.base import ExecutorSection, Facts
from bridgepack.config.cluster.general import KNOWN, NemoRunExecutor
from bridgepack.config.cluster.machine import DockerExecutor, LocalExecutor, TorchrunExecutor
from bridgepack.config.cluster.slurm import SlurmExecutor

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
#: What launches know of each kind, those among them that are short for `nemo_run` with a class.
FACTS: Mapping[str, Facts] = MappingProxyType(
    {kind: section.FACTS for kind, section in EXECUTORS.items() if kind != "nemo_run"} | dict(KNOWN)
)
#: Kinds whose tasks are processes of this machine, and see its files.
LOCAL_KINDS = frozenset({"local", "torchrun"})
