"""Makes nemo-run's executors, scripts and manifests of cluster files, in a process of its own with every platform.

Reads a JSON file with `made` (name -> values, task, num_gpus) and writes what came out to another.
"""

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from tests.support.executor_outputs import output_of

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: none}}]
contexts: [{name: k, context: {cluster: c, user: u}}]
current-context: k
"""
CLASSES = {
    "executor": {
        "local": "nemo_run:LocalExecutor",
        "torchrun": "nemo_run:LocalExecutor",
        "docker": "nemo_run:DockerExecutor",
        "slurm": "nemo_run:SlurmExecutor",
        "skypilot": "nemo_run:SkypilotExecutor",
        "skypilot_jobs": "nemo_run:SkypilotJobsExecutor",
        "kubeflow": "nemo_run:KubeflowExecutor",
        "dgxcloud": "nemo_run:DGXCloudExecutor",
        "lepton": "nemo_run:LeptonExecutor",
    },
    "launcher": {
        "none": "nemo_run.core.execution.launcher:Launcher",
        "torchrun": "nemo_run:Torchrun",
        "fault_tolerance": "nemo_run:FaultTolerance",
        "slurm_template": "nemo_run:SlurmTemplate",
        "slurm_ray": "nemo_run:SlurmRay",
    },
    "packager": {
        "none": "nemo_run:Packager",
        "git_archive": "nemo_run:GitArchivePackager",
        "pattern": "nemo_run:PatternPackager",
        "hybrid": "nemo_run:HybridPackager",
    },
    "tunnel": {"local": "nemo_run:LocalTunnel", "ssh": "nemo_run:SSHTunnel"},
    "job_details": {"": "nemo_run.core.execution.slurm:SlurmJobDetails"},
}


def main(request_file: Path, answer_file: Path) -> None:
    """Answer one request."""
    request = json.loads(request_file.read_text())
    folder = answer_file.parent
    (folder / "kubeconfig").write_text(_KUBECONFIG)
    os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
    asked_for = {name: asked for name, asked in request["made"].items() if not name.startswith("refused/")}
    made = {name: _make(**asked) for name, asked in asked_for.items()}
    answer = {
        "classes": {
            part: {kind: _init_fields(target) for kind, target in kinds.items()} for part, kinds in CLASSES.items()
        },
        "experiment_executors": _experiment_executors(),
        "executors": _executors(),
        "refused": {name: _refusal(**request["made"][name]) for name in request["made"].keys() - asked_for.keys()},
        "made": {name: _plain(executor) for name, executor in made.items()},
        "outputs": {name: output_of(executor, name, folder) for name, executor in made.items() if "dry" in name},
    }
    answer_file.write_text(json.dumps(answer, indent=1))


def _make(values: dict[str, Any], task: str = "train", **options: Any) -> Any:
    from bridgepack.config.cluster import ClusterConfig
    from bridgepack.launching.tasks import make_executor

    return make_executor(ClusterConfig.from_mapping(values), task, **options)  # type: ignore[arg-type]


def _refusal(values: dict[str, Any]) -> str:
    from bridgepack.errors import ConfigError

    try:
        _make(values)
    except ConfigError as error:
        return str(error)
    return "nothing was refused"


def _executors() -> list[str]:
    """Return the names of every executor that nemo-run has."""
    package = importlib.import_module("nemo_run.core.execution")
    modules = [importlib.import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__)]
    base = importlib.import_module("nemo_run").Executor
    found = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return sorted(kind.__name__ for kind in found if issubclass(kind, base) and kind is not base)


def _find(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _init_fields(target: str) -> dict[str, Any]:
    """Return the init fields of a dataclass with their defaults, where these are plain."""
    fields = [field for field in dataclasses.fields(_find(target)) if field.init]
    return {field.name: _plain_default(field) for field in fields}


def _plain_default(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return _plain(field.default)
    return "no default" if field.default_factory is dataclasses.MISSING else _plain(field.default_factory())


def _experiment_executors() -> list[str]:
    mapping = importlib.import_module("nemo_run.run.torchx_backend.schedulers.api").EXECUTOR_MAPPING
    return sorted(kind.__name__ for kind in mapping)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__} | {name: _plain(item) for name, item in fields.items()}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
