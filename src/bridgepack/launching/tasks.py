"""A launch's tasks as nemo-run's scripts and executors, with every field of the cluster file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import nemo_run as run
from nemo_run.core.execution.launcher import Launcher
from nemo_run.core.execution.slurm import SlurmJobDetails

from bridgepack.config.cluster.base import PROCESS_LAUNCHERS, NoLauncher, Task
from bridgepack.config.cluster.cluster import ClusterConfig, make_section
from bridgepack.config.cluster.executors import LOCAL_KINDS, Executor, NemoRunExecutor
from bridgepack.config.cluster.processes import Processes
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.config.cluster.values import REFERENCE, hide_secrets, is_word, resolve_references
from bridgepack.config.document import stated_values
from bridgepack.errors import ConfigError
from bridgepack.launching.classes import field_names, find_executor, object_of
from bridgepack.launching.plan import DEFAULT_PYTHON, LaunchPlan
from bridgepack.running.assignment import OPTION, encode
from bridgepack.user_files import text_if_there

#: Kinds of packagers, launchers and tunnels -> their classes.
_PARTS: Mapping[str, Any] = {
    "git_archive": run.GitArchivePackager,
    "pattern": run.PatternPackager,
    "hybrid": run.HybridPackager,
    "torchrun": run.Torchrun,
    "fault_tolerance": run.FaultTolerance,
    "slurm_template": run.SlurmTemplate,
    "slurm_ray": run.SlurmRay,
    "local": run.LocalTunnel,
    "ssh": run.SSHTunnel,
}
_NO_LAUNCHER: Mapping[str, Any] = NoLauncher(kind="none").model_dump(mode="json")
#: nemo-run's handle of a job that the file names only by id.
_JOB_HANDLE = "slurm_tunnel://nemo_run/{}"
#: Text that is one shell word; `$` stays unquoted, so that `$HOME` and nemo-run's macros expand.
_ONE_WORD = re.compile(r"[\w@%+=:,./$~{}^-]*", re.ASCII)
#: What must not act in double quotes: quotes, backquotes, and `$`, but for `$NAME`, `${NAME}` and `${NAME:-WORD}`.
_ACTIVE = re.compile(rf'{REFERENCE.pattern}|[\\"`]|\$(?![A-Za-z_]|\{{[A-Za-z_]\w*(:?-[\w@%+=:,./~^-]*)?\}})', re.ASCII)
#: srun's variable for the CPU cores per process.
_CORES = re.compile(r"--cpus-per-task\b|-c")


def make_executor(
    cluster: ClusterConfig,
    task: Task,
    *,
    num_gpus: int | None = None,
    run_name: str = "bridgepack",
    for_display: bool = False,
) -> run.Executor:
    """Return nemo-run's executor for one task (build, check or train) of a launch; starts and writes nothing.

    `num_gpus` fills what the cluster does not set. `for_display` (dry run) keeps `${env:NAME}` and hides secrets.

    Raises:
        ConfigError: a variable is not set, the GPUs do not fill whole nodes, the class of the executor lacks or refuses
            a field, or what it needs is not installed.
    """
    section, processes = cluster.executor_for(task), cluster.processes(task, num_gpus)
    task_fields = frozenset(getattr(cluster.tasks, task).executor)
    values = _resolve(_for_task(section, task, task_fields), section, for_display=for_display)
    values.update(_process_values(section, processes))
    if task != "train" and section.facts.class_name == "SkypilotExecutor" and "cluster_name" not in task_fields:
        # SkyPilot refuses a task that needs more than an existing cluster has, so small tasks get their own cluster.
        values["cluster_name"] = f"{section.value('cluster_name') or run_name}-cpu"
    if section.kind in LOCAL_KINDS:
        # torchx prepends this to PATH, so `python` and `torchrun` come from this environment.
        values["env_vars"] = {"PATH": str(Path(sys.executable).parent), **values["env_vars"]}
    if "packager" in values:
        values["packager"] = _part(values["packager"], default=run.Packager)
    values["launcher"] = None if values["launcher"] == _NO_LAUNCHER else _part(values["launcher"], default=Launcher)
    if isinstance(section, SlurmExecutor):
        values.update(_slurm_values(section, values, run_name))
    executor = _make_executor(section, values)
    if task == "train" and isinstance(section, NemoRunExecutor):
        _refuse_other_counts(section, executor, processes)
    return executor


def _slurm_values(section: SlurmExecutor, values: dict[str, Any], run_name: str) -> dict[str, Any]:
    """Return the values of a Slurm executor, adjusted so that nemo-run's scripts do what the file says."""
    srun_args = values["srun_args"]
    cores = section.cpus_per_task
    if cores is not None and not any(_CORES.match(argument) for argument in srun_args or ()):
        # Since Slurm 22.05 srun gives a task one core, whatever the job has.
        srun_args = [*(srun_args or ()), f"--cpus-per-task={cores}"]
    env_vars = values["env_vars"]
    if section.launcher.kind == "slurm_ray":
        env_vars = {"HEAD_NODE_ADDR": "$head_node_ip", **env_vars}  # its script fails without it
    return {
        "job_name_prefix": values["job_name_prefix"] or f"{run_name}.",  # nemo-run's own is ACCOUNT-ACCOUNT.
        "tunnel": _part(values["tunnel"]),
        "job_details": SlurmJobDetails(**values["job_details"]),
        "dependencies": [_JOB_HANDLE.format(job) if "://" not in job else job for job in section.dependencies],
        "exclusive": section.exclusive or None,  # false would be written as --exclusive=False
        "srun_args": srun_args,
        "env_vars": env_vars,
    }


def _for_task(section: Executor, task: Task, task_fields: frozenset[str]) -> dict[str, Any]:
    """Return the section's fields; `build` and `check` get GPUs and torchrun only if their own fields set them."""
    values = section.model_dump(mode="json", exclude={"kind", "class_"})
    if isinstance(section, NemoRunExecutor) and "packager" not in section.model_fields_set:
        del values["packager"]  # the class has its own default
    if task != "train":
        for name in {*section.facts.counts, *section.facts.gpu_only} - task_fields:
            if name != "gres" or (isinstance(section, SlurmExecutor) and section.gpus_in_gres() is not None):
                values.pop(name, None)
        if section.launcher.kind in PROCESS_LAUNCHERS and "launcher" not in task_fields:
            values["launcher"] = dict(_NO_LAUNCHER)
    return values


def _resolve(values: dict[str, Any], section: Executor, *, for_display: bool) -> dict[str, Any]:
    """Return the values with references resolved, or with secrets hidden for display."""
    environment, env_vars = None if for_display else os.environ, values.pop("env_vars")
    of_ray = values["launcher"].get("env_vars") if section.launcher.kind == "slurm_ray" else None
    if environment is None:
        values, env_vars, of_ray = hide_secrets(values), hide_secrets(env_vars), hide_secrets(of_ray)
    else:
        values = resolve_references(values, environment, "executor")
        plain = resolve_references({**stated_values(section), "env_vars": {}}, environment, "executor")
        make_section(plain, place="executor")  # a variable's value is checked as the file's own
    if of_ray:  # nemo-run writes them in double quotes
        ray_variables = {
            name: _in_double_quotes(of_ray[name], environment, f"executor.launcher.env_vars.{name}") for name in of_ray
        }
        values["launcher"] = {**values["launcher"], "env_vars": ray_variables}
    if section.facts.exports_env_vars:
        return {**values, "env_vars": export_variables(env_vars, environment)}
    if environment is not None:
        env_vars = resolve_references(env_vars, environment, "executor.env_vars")
    return {**values, "env_vars": env_vars}


def export_variables(env_vars: Mapping[str, str], environment: Mapping[str, str] | None) -> dict[str, str]:
    """Return variables quoted for `export NAME=VALUE`: `--a --b` becomes `"--a --b"`, `$HOME` stays, `$(id)` is text.

    `${env:NAME}` is replaced from `environment`, with `$` in its value quoted; None keeps references.

    Raises:
        ConfigError: a variable is not set.
    """
    return {name: _quote(value, environment, f"executor.env_vars.{name}") for name, value in env_vars.items()}


def _quote(value: str, environment: Mapping[str, str] | None, where: str) -> str:
    text = _in_double_quotes(value, environment, where)
    return text if _ONE_WORD.fullmatch(text) else f'"{text}"'


def _in_double_quotes(value: str, environment: Mapping[str, str] | None, where: str) -> str:
    def escape(match: re.Match[str]) -> str:
        if not REFERENCE.fullmatch(match[0]):
            return f"\\{match[0]}"
        if environment is None:
            return match[0]
        return re.sub(r'[\\"`$]', r"\\\g<0>", resolve_references(match[0], environment, where))

    return _ACTIVE.sub(escape, value)


def _process_values(section: Executor, processes: Processes) -> dict[str, Any]:
    facts, per_node = section.facts, processes.num_per_node or 1
    counts = {facts.nodes: processes.num_nodes or 1, facts.processes: per_node, facts.gpus: processes.gpus_per_node}
    values: dict[str, Any] = {name: count for name, count in counts.items() if name}
    if isinstance(section, NemoRunExecutor):
        of_class = field_names(find_executor(facts.class_name))
        return {name: count for name, count in values.items() if name in of_class and count is not None}
    if isinstance(section, SlurmExecutor) and processes.has_process_launcher:
        # By default nemo-run gives torchrun ntasks_per_node (1) processes: one process on eight GPUs.
        values |= {"ntasks_per_node": 1, "torchrun_nproc_per_node": per_node}
    return values


def _refuse_other_counts(section: NemoRunExecutor, executor: run.Executor, processes: Processes) -> None:
    counts = (processes.num_nodes or 1, processes.num_per_node or 1)
    with contextlib.suppress(NotImplementedError):  # classes that report no processes
        class_counts = (executor.nnodes(), executor.nproc_per_node())
        if processes.has_process_launcher and class_counts != counts:
            raise ConfigError(
                f"executor.class is {section.facts.class_name}; it would start {class_counts[1]} processes on each of "
                f"{class_counts[0]} nodes, and the run needs {counts[1]} on each of {counts[0]}. Set the class's "
                f"own fields for them; the launch reads {section.facts.nodes} and {section.facts.processes}."
            )


def _make_executor(section: Executor, values: dict[str, Any]) -> Any:
    cls = find_executor(section.facts.class_name)
    if isinstance(section, NemoRunExecutor):  # counts that only the launch reads are no fields of the class
        values = {name: value for name, value in values.items() if name not in section.facts.counts - field_names(cls)}
    try:
        return object_of(cls, values)
    except (ImportError, AssertionError) as error:
        reason, extra = " ".join(str(error).split()), section.facts.extra
        hint = f" Install what it needs: pip install 'nemo-run[{extra}]'." if extra and "nstall" in reason else ""
        raise ConfigError(f"executor.kind is {section.kind}; nemo-run cannot make it here: {reason}{hint}") from None
    except Exception as error:
        # The Kubernetes client raises its own exception for a missing or wrong configuration.
        if type(error).__name__ != "ConfigException":
            raise
        raise ConfigError(
            f"executor.kind is {section.kind}; there is no usable Kubernetes configuration: {error} Set KUBECONFIG to "
            f"the cluster's configuration, or write ~/.kube/config."
        ) from None


def _part(values: Mapping[str, Any], *, default: Any = None) -> Any:
    """Return nemo-run's packager, launcher or tunnel for a section (`default` for kind `none`); opens no connection."""
    fields = dict(values)
    cls = _PARTS.get(fields.pop("kind"), default)
    if "sub_packagers" in fields:
        fields["sub_packagers"] = {name: _part(inner) for name, inner in fields["sub_packagers"].items()}
    if fields.get("identity") is not None:
        fields["identity"] = str(Path(fields["identity"]).expanduser())
    if (template := fields.get("template_path")) is not None and Path(template).is_absolute():
        fields["template_inline"] = text_if_there(Path(template))  # nemo-run has the relative ones
    return cls(**fields)


#: Environment variable that marks a run's processes on this machine.
RUN_VARIABLE = "BRIDGEPACK_RUN"
#: `python -m` would put the user's folder before all that is installed; the command that launches does not look there.
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchTask:
    """One task, ready for `run.Experiment.add`."""

    name: Task  #: build, check or train
    script: run.Script  #: what runs
    executor: run.Executor  #: where it runs
    dependencies: tuple[str, ...] = ()  #: names of the tasks that must succeed first
    plugins: tuple[run.Plugin, ...] = ()  #: plugins that act on the task when it is added


def make_tasks(plan: LaunchPlan, *, for_display: bool = False) -> tuple[LaunchTask, ...]:
    """Return the tasks of a plan in order, each depending on the previous one; writes and submits nothing.

    Add them to any experiment: `experiment.add(task.script, executor=task.executor, name=task.name,
    dependencies=list(task.dependencies))`.

    Raises:
        ConfigError: the cluster's settings give no valid executor, or the recipe is too long for an argument.
    """
    word = encode(plan.assignment())
    before = {task: (first,) for first, task in pairwise(plan.tasks)}
    tasks = tuple(
        LaunchTask(
            name=task,
            script=_script(plan, task, word),
            executor=make_executor(
                plan.cluster, task, num_gpus=plan.world_size, run_name=plan.run_name, for_display=for_display
            ),
            dependencies=before.get(task, ()),
        )
        for task in plan.tasks
    )
    _chain_on_slurm(tasks)
    return tasks


def _script(plan: LaunchPlan, task: Task, word: str) -> run.Script:
    cluster = plan.cluster
    arguments, variables = [OPTION, word], _local_variables(plan, task)
    is_in_shell = cluster.executor_for(task).kind not in LOCAL_KINDS
    python, path = (
        _quoted_path(path) if path and is_in_shell else path for path in (cluster.python, cluster.train_script)
    )
    if task == "train" and path is not None:
        # With another entry point nemo-run lets torchrun execute the script directly, through its shebang line.
        entry_point = DEFAULT_PYTHON if cluster.processes(task).has_process_launcher else python
        return run.Script(path=path, entrypoint=entry_point, args=arguments, env=variables)
    return run.Script(path=f"bridgepack.running.{task}", m=True, entrypoint=python, args=arguments, env=variables)


def _quoted_path(path: str) -> str:
    """Return a path as the shell scripts of nemo-run need it, which quote nothing: options may follow it."""
    name, dash, options = path.partition(" -")
    return path if is_word(name, expands=True) else f"{shlex.quote(name)}{dash}{options}"


def _local_variables(plan: LaunchPlan, task: Task) -> dict[str, str]:
    """Return variables for processes on this machine: the run's mark, and PATH with the chosen Python's folder.

    A single training process gets world size 1: within a Slurm allocation it would inherit the number of tasks and wait
    for the others.
    """
    if plan.cluster.executor_for(task).kind not in LOCAL_KINDS:
        return {}
    python = plan.cluster.python
    path = {"PATH": str(Path(python).parent)} if os.sep in python else {}
    is_alone = task == "train" and not plan.cluster.processes(task).has_process_launcher
    is_module = task != "train" or plan.cluster.train_script is None
    return {RUN_VARIABLE: plan.run_name, **path, **(_ALONE if is_alone else {}), **(_SAFE_PATH if is_module else {})}


def _chain_on_slurm(tasks: tuple[LaunchTask, ...]) -> None:
    """Make Slurm start a task only after the previous one succeeded, and cancel it if that becomes impossible.

    nemo-run passes `--dependency=DEPENDENCY_TYPE:JOB` to sbatch for waiting tasks. The cluster file's `dependencies`
    apply to the first task.
    """
    if not all(isinstance(task.executor, run.SlurmExecutor) for task in tasks):
        return
    for executor in (task.executor for task in tasks[1:]):
        executor.dependency_type = "afterok"
        executor.dependencies = []
        executor.additional_parameters = {"kill_on_invalid_dep": "yes", **(executor.additional_parameters or {})}


def is_on_this_machine(cluster: ClusterConfig, task: Task) -> bool:
    """Return whether a task's processes or containers run on this machine and end with the launch."""
    return cluster.executor_for(task).kind in {*LOCAL_KINDS, "docker"}
