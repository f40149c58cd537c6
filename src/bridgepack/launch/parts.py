"""Builds nemo-run's objects from plain values: launchers, packagers, tunnels, and the executor itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bridgepack.config.cluster.executors import Executor
from bridgepack.config.cluster.general import NemoRunExecutor
from bridgepack.errors import ConfigError
from bridgepack.launch.signatures import checked_executor, find_executor, nemo_run

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


def build_executor(section: Executor, values: dict[str, Any]) -> Any:
    """Return nemo-run's executor of a section's class; launcher and packager are nemo-run's objects already.

    Raises:
        ConfigError: its class lacks or refuses a field, or what it needs is not installed or not set up.
    """
    cls = find_executor(section.facts.class_name)
    if isinstance(section, NemoRunExecutor):
        values = checked_executor(section, values)
    try:
        return cls(**values)
    except (ImportError, AssertionError) as error:
        reason, extra = " ".join(str(error).split()), section.facts.extra
        hint = f" Install what it needs: pip install 'nemo-run[{extra}]'." if extra and "nstall" in reason else ""
        raise ConfigError(f"executor.kind is {section.kind}; nemo-run cannot make it here: {reason}{hint}") from None
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
