"""Builds nemo-run's objects from plain values: launchers, packagers, tunnels, and the executor itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bridgepack.config.cluster.executors import Executor
from bridgepack.errors import ConfigError

_PACKAGERS = {
    "none": "Packager",
    "git_archive": "GitArchivePackager",
    "pattern": "PatternPackager",
    "hybrid": "HybridPackager",
}
_LAUNCHERS = {
    "torchrun": "Torchrun",
    "fault_tolerance": "FaultTolerance",
    "slurm_template": "SlurmTemplate",
    "slurm_ray": "SlurmRay",
}
_KUBERAY = "nemo_run.core.execution.kuberay"


def nemo_run() -> Any:
    """Return the module.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("nemo_run")
    except ImportError as error:
        raise ConfigError(
            f"nemo-run cannot be imported: {error}. Install it: pip install 'bridgepack[launch]'."
        ) from None


def build_executor(section: Executor, values: dict[str, Any]) -> Any:
    """Return nemo-run's executor of a section's class.

    Args:
        section: tells the class.
        values: its fields; parts are nemo-run's objects already.

    Raises:
        ConfigError: what it needs is not installed or not set up.
    """
    module = nemo_run()
    try:
        if section.kind == "kuberay":
            module = importlib.import_module(_KUBERAY)
            groups = [module.KubeRayWorkerGroup(**group) for group in values.pop("worker_groups")]
            values = {**values, "worker_groups": groups}
        return getattr(module, section.NEMO_RUN_CLASS)(**values)
    except (ImportError, AssertionError) as error:
        raise ConfigError(
            f"executor.kind is {section.kind}; nemo-run cannot make it here: {' '.join(str(error).split())} Install "
            f"what it needs: pip install 'nemo-run[{section.NEMO_RUN_EXTRA}]'."
        ) from None
    except Exception as error:
        # The Kubernetes client has an exception of its own for a missing or wrong configuration.
        if type(error).__name__ != "ConfigException":
            raise
        raise ConfigError(
            f"executor.kind is {section.kind}; there is no usable Kubernetes configuration: {error} Set KUBECONFIG to "
            f"that of the cluster, or write ~/.kube/config."
        ) from None


def make_packager(values: dict[str, Any]) -> Any:
    """Return nemo-run's packager of a section's plain values."""
    fields = {name: value for name, value in values.items() if name != "kind"}
    if "sub_packagers" in fields:
        fields["sub_packagers"] = {name: make_packager(inner) for name, inner in fields["sub_packagers"].items()}
    return getattr(nemo_run(), _PACKAGERS[values["kind"]])(**fields)


def make_launcher(values: dict[str, Any], *, is_default: bool) -> Any:
    """Return nemo-run's launcher of a section's plain values; None for none with nothing set."""
    fields = {name: value for name, value in values.items() if name != "kind"}
    if values["kind"] != "none":
        return getattr(nemo_run(), _LAUNCHERS[values["kind"]])(**fields)
    if is_default:
        return None
    nemo_run()
    return importlib.import_module("nemo_run.core.execution.launcher").Launcher(**fields)


def make_tunnel(values: dict[str, Any]) -> Any:
    """Return nemo-run's tunnel of a section's plain values; nothing is connected."""
    fields = {name: value for name, value in values.items() if name != "kind"}
    if values["kind"] == "local":
        return nemo_run().LocalTunnel(**fields)
    if fields["identity"] is not None:
        fields["identity"] = str(Path(fields["identity"]).expanduser())
    return nemo_run().SSHTunnel(**fields)


def make_job_details(values: dict[str, Any]) -> Any:
    """Return nemo-run's details of a Slurm job."""
    nemo_run()
    return importlib.import_module("nemo_run.core.execution.slurm").SlurmJobDetails(**values)
