"""Notes on cluster settings that are valid but may surprise."""

from collections.abc import Iterator
from importlib.util import find_spec
from types import MappingProxyType

from bridgepack.config.cluster.base import PROCESS_LAUNCHERS, TASKS, Task
from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.cluster.executors import SKYPILOT, Executor, LocalFields, NemoRunExecutor
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.config.cluster.values import is_inside, is_secret_name, plain_secrets

_SAFER = MappingProxyType(
    {
        "SlurmExecutor": "sbatch passes on its own environment: export the variable where sbatch runs.",
        "KubeflowExecutor": "Use env_list with valueFrom.secretKeyRef.",
    }
)
_SAFER_ELSEWHERE = "Keep it in a file that the nodes read."


def cluster_notes(cluster: ClusterConfig) -> tuple[str, ...]:
    """Return one note for each setting that is valid but may surprise."""
    return tuple(dict.fromkeys(_notes(cluster)))


def _notes(cluster: ClusterConfig) -> Iterator[str]:
    executors = {task: cluster.executor_for(task) for task in TASKS if not getattr(cluster.tasks, task).skip}
    kinds = sorted({executor.title for executor in executors.values()})
    if len(kinds) > 1:
        yield (
            f"Tasks run on {' and '.join(kinds)}: workspace {cluster.workspace_path} must be the same folder on both."
        )
    for task, executor in executors.items():
        place = cluster.place_of(task)
        yield from _workspace_notes(executor, cluster.workspace_path, place)
        if isinstance(executor, SlurmExecutor):
            notes = _slurm_notes(executor, task)
        elif isinstance(executor, NemoRunExecutor):
            notes = _class_notes(executor)
        else:
            notes = iter(())
        for note in (*_variable_notes(executor), *(_process_notes(executor) if task == "train" else ()), *notes):
            yield f"{place}{note}"
    for path in plain_secrets(cluster.model_dump(mode="python", exclude_unset=True)):
        yield f"{path} is a secret in plain text. Write ${{env:NAME}}, and set that variable where you launch."
    train = executors.get("train")
    if cluster.python != "python" and train is not None and train.launcher.kind in PROCESS_LAUNCHERS:
        yield f"python is {cluster.python}; {train.launcher.kind} uses the Python of the launcher command in PATH."


def _workspace_notes(executor: Executor, workspace: str, place: str) -> Iterator[str]:
    paths = executor.paths_on_nodes()
    if paths is not None and not any(is_inside(workspace, path) for path in paths):
        yield (
            f"{place}: workspace {workspace} is in no folder that the container mounts "
            f"({', '.join(paths) or 'nothing'}); what a task writes there is lost. Mount it under the same path."
        )
    if executor.facts.class_name in SKYPILOT and paths is None:
        yield f"{place}: workspace {workspace} is on the local disk of one machine. Put it on a storage_mounts storage."


def _variable_notes(executor: Executor) -> Iterator[str]:
    for name in filter(is_secret_name, executor.env_vars if executor.facts.exports_env_vars else ()):
        yield (
            f".env_vars.{name}: nemo-run writes its value into the job's script, and the script prints it "
            f"into the log. {_SAFER.get(executor.facts.class_name, _SAFER_ELSEWHERE)}"
        )


def _process_notes(executor: Executor) -> Iterator[str]:
    launcher = executor.launcher.kind
    if launcher in PROCESS_LAUNCHERS:
        return
    if executor.value("torchrun_nproc_per_node") is not None:
        yield f".torchrun_nproc_per_node has no effect with the launcher {launcher}."
    if not isinstance(executor, SlurmExecutor) and executor.kind != "local":
        yield f".launcher is {launcher}: {executor.title} starts one process on each node."
    if isinstance(executor, LocalFields) and executor.ntasks_per_node not in {None, 1}:
        yield ".ntasks_per_node has no effect without torchrun. Set kind to torchrun."


def _class_notes(executor: NemoRunExecutor) -> Iterator[str]:
    name = executor.facts.class_name
    if find_spec("nemo_run") is None:
        yield f": nemo-run is not installed here; the launch compares the fields with those of {name}."
    if name == "KubeflowExecutor":
        yield ": nemo-run 0.11 writes TrainJobs of Kubeflow Trainer 2.1; others drop the volumes in them."
    stops = executor.value("autodown") or executor.value("idle_minutes_to_autostop") is not None
    if name == "SkypilotExecutor" and not stops:
        yield ": SkyPilot leaves the cluster running. Set autodown or idle_minutes_to_autostop."


def _slurm_notes(executor: SlurmExecutor, task: Task) -> Iterator[str]:
    if "time" not in executor.model_fields_set:
        yield ".time is not set: nemo-run gives a job ten minutes."
    for name in executor.env_vars:
        if name != name.upper():
            yield f".env_vars.{name}: nemo-run exports it as {name.upper()} on Slurm."
    if executor.container_image is None and executor.container_mounts:
        yield ".container_mounts has no effect without container_image."
    ranks, gpus = executor.ntasks_per_node, executor.gpus_per_node
    if task == "train" and ranks and gpus and ranks != gpus and executor.launcher.kind not in PROCESS_LAUNCHERS:
        yield f".ntasks_per_node is {ranks} and gpus_per_node {gpus}: a rank uses one GPU."
    if task == "train" and executor.cpus_per_gpu and not executor.gpus_per_task:
        yield ".cpus_per_gpu is set: Slurm wants gpus_per_task with it."
