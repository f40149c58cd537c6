"""The cluster file: an executor, a workspace shared by all tasks, and per-task settings; and how it is loaded."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from bridgepack.config.cluster.base import PROCESS_LAUNCHERS, TASKS, Task
from bridgepack.config.cluster.executors import FACTS, LOCAL_KINDS, Executor, LocalFields, NemoRunExecutor
from bridgepack.config.cluster.processes import Processes, processes_of
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.config.cluster.values import EnvironmentVariables, FreeForm, Switch, Text, hide_secrets, is_word
from bridgepack.config.document import Document, stated_values
from bridgepack.config.errors import config_error, did_you_mean, quote
from bridgepack.config.reading import read_sections, written_in
from bridgepack.config.section import Section
from bridgepack.errors import ConfigError

#: Built-in clusters: this machine.
_BUILT_IN = ("local", "torchrun")
#: Characters that end the quotes in which nemo-run's commands are.
_IN_QUOTES = re.compile(r"['\"\\]")


class TaskConfig(Section):
    """Settings of one task."""

    skip: Switch = False
    """Skip the task in every launch."""
    executor: FreeForm = Field(default_factory=dict)
    """Fields that override those of the cluster's executor, e.g. `{partition: cpu}`; with another `kind`, a separate
    executor."""
    env_vars: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of this task; they override those of its executor."""


class TasksConfig(Section):
    """Settings of each task."""

    build: TaskConfig = TaskConfig()
    """Builds or finds the packs; one process that needs no GPU."""
    check: TaskConfig = TaskConfig()
    """Checks recipe, packs and environment; one process that needs no GPU."""
    train: TaskConfig = TaskConfig()
    """Trains."""


class _OneExecutor(Section):
    executor: Executor


class ClusterConfig(Document):
    """Where and how the tasks of a run are started; frozen. Change it with `override`."""

    WHAT = "cluster file"
    OPTION = "--cluster-set"

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] | None = None
    """Name shown in output; by default the executor's kind."""
    executor: Executor
    """What starts the tasks."""
    workspace: Text = "bridgepack-runs"
    """Folder that every task sees under the same path: packs go to its `artifacts/`, runs to its `runs/NAME/`. It may
    be relative for local executors; otherwise it is absolute."""
    python: Annotated[str, Field(pattern=r"python[^/]*$")] = "python"
    """Python on the nodes, with bridgepack and megatron-bridge; options may follow, e.g. `python -u`. The node expands
    `$NAME`. The torchrun launcher uses `torchrun` from PATH."""
    train_script: Text | None = None
    """Path on the nodes of a script to train with, instead of `python -m bridgepack.running.train`; options may follow.
    The node expands `$NAME`."""
    tasks: TasksConfig = TasksConfig()
    """Settings of single tasks."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.executor.kind not in LOCAL_KINDS and not self.workspace.startswith("/"):
            raise ValueError(
                f"workspace is {self.workspace!r}; with a {self.executor.kind} executor it is a path on the nodes. Set "
                f"it to an absolute path that every task sees, e.g. /shared/bridgepack."
            )
        for fault in self._program_faults():
            raise ValueError(fault)
        for task in TASKS:
            for fault in _executor_faults(self.executor_for(task), task):
                raise ConfigError(f"{self.place_of(task)}.{fault}")
        return self

    def _program_faults(self) -> Iterator[str]:
        """Yield the reasons why shells on the nodes would not read `python` or `train_script` as it is written."""
        remote = [executor for executor in map(self.executor_for, TASKS) if executor.kind not in LOCAL_KINDS]
        for name in ("python", "train_script"):
            value: str = getattr(self, name) or ""
            program, _, options = value.partition(" -")
            if not all(is_word(option, expands=True) for option in options.split()):
                yield (
                    f"{name} is {value!r}; allowed: options without spaces, quotes and other shell characters, "
                    "because a shell on the nodes splits them. Correct them."
                )
            if remote and _IN_QUOTES.search(program):
                yield (
                    f"{name} is {value!r}; nemo-run writes it between quotes into a shell command; allowed: a path "
                    "without quotes and backslashes. Rename it."
                )
            if not is_word(program, expands=True) and any(map(_measures_gpus, remote)):
                yield (
                    f"{name} is {value!r}; with launcher.nsys_gpu_metrics, nemo-run writes it unquoted into a shell "
                    "command; allowed: a path without spaces and other characters of the shell. Rename it, or set "
                    "nsys_gpu_metrics to false."
                )

    @property
    def title(self) -> str:
        """The name, else the executor's kind or class."""
        return self.name or self.executor.title

    @property
    def is_remote(self) -> bool:
        """True if tasks run in containers or on other machines, not as processes of this machine."""
        return any(self.executor_for(task).kind not in LOCAL_KINDS for task in TASKS)

    @property
    def workspace_path(self) -> str:
        """The workspace as an absolute path."""
        if self.executor.kind in LOCAL_KINDS:
            return str(Path(self.workspace).expanduser().absolute())
        return self.workspace

    @property
    def world_size(self) -> int | None:
        """Total processes of the training task, or None if the recipe decides."""
        return self.processes("train").world_size

    def place_of(self, task: Task) -> str:
        """Return the dotted path of a task's executor in the file."""
        return f"tasks.{task}.executor" if getattr(self.tasks, task).executor else "executor"

    def processes(self, task: Task, num_gpus: int | None = None) -> Processes:
        """Return the nodes and processes of a task; `num_gpus` (the recipe's) fills what the file does not set.

        Raises:
            ConfigError: the GPUs do not fill whole nodes.
        """
        fields = set(getattr(self.tasks, task).executor)
        return processes_of(self.executor_for(task), task, num_gpus, own_fields=fields, place=self.place_of(task))

    def display_values(self) -> dict[str, Any]:
        """Return the file's values as plain values, with secrets hidden."""
        values: dict[str, Any] = hide_secrets(stated_values(self))
        return values

    def executor_for(self, task: Task) -> Executor:
        """Return the executor of one task: the cluster's, overridden by the task's own fields and variables."""
        settings: TaskConfig = getattr(self.tasks, task)
        if not settings.executor and not settings.env_vars:
            return self.executor
        values = _merge(stated_values(self.executor), settings.executor)
        if settings.env_vars:
            values = _merge(values, {"env_vars": settings.env_vars})
        return make_section(values, place=self.place_of(task))


def make_section(values: Mapping[str, Any], *, place: str) -> Executor:
    """Return an executor section of plain values; `place` is its dotted path in the file.

    Raises:
        ConfigError: a value is impossible.
    """
    try:
        return _OneExecutor.model_validate({"executor": values}).executor
    except ValidationError as error:
        raise cluster_error(error, _OneExecutor, place=place) from None


def load_cluster(
    target: str | Path | ClusterConfig | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> ClusterConfig:
    """Return the cluster that `target` names, with overrides applied and validated.

    Args:
        target: a cluster, a dict of its fields, `FILE.yaml`, `FILE.toml`, or `local` or `torchrun` for this machine.
        overrides: dotted path -> value, e.g. `{"executor.nodes": 4}`.

    Raises:
        ConfigError: it cannot be found or read, or has an unknown field or an impossible value.
    """
    if isinstance(target, Mapping):
        cluster = ClusterConfig.from_mapping(target)
    else:
        cluster = target if isinstance(target, ClusterConfig) else _load(str(target))
    return cluster.override(overrides) if overrides else cluster


def _load(target: str) -> ClusterConfig:
    if target in _BUILT_IN:
        return ClusterConfig.from_mapping({"executor": {"kind": target}})
    path = Path(target)
    if path.suffix.lower() not in {".yaml", ".yml", ".toml"}:
        names = " or ".join(_BUILT_IN)
        hint = did_you_mean(target, _BUILT_IN, "Write a cluster file, or use one of these names.")
        raise ConfigError(f"cluster is {quote(target)}; allowed: FILE.yaml, FILE.toml, {names}. {hint}")
    values = read_sections(path, content="cluster", fields="executor, workspace, ...")
    with written_in(path):
        return ClusterConfig.from_mapping(values)


def cluster_error(error: ValidationError, model: type[BaseModel], *, place: str) -> ConfigError:
    """Return one ConfigError with a line for every wrong field; `place` is the executor's dotted path in the file."""
    return config_error(error, model, content="cluster file", option="--cluster-set", relocation=("executor", place))


def _merge(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` overridden by those of `over`, section by section.

    A section with another `kind`, or another class of `kind: nemo_run`, is replaced as a whole.

    `{kind: slurm, time: 60, env_vars: {A: 1}}` and `{env_vars: {B: 2}}` give
    `{kind: slurm, time: 60, env_vars: {A: 1, B: 2}}`.
    """
    kind = values.get("kind")
    if over.get("kind", kind) != kind:
        return dict(over)
    if kind == "nemo_run" and over.get("class", values.get("class")) != values.get("class"):
        return {"kind": kind, **over}
    result = {**values, **over}
    for name, value in over.items():
        below = values.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[name] = _merge(below, value)
    return result


def _executor_faults(executor: Executor, task: Task) -> Iterator[str]:
    """Yield the reasons why a launch cannot use the executor of a task; each starts with the field."""
    yield from _choice_faults(executor, "launcher", executor.launcher.kind, executor.facts.launchers)
    if not isinstance(executor, NemoRunExecutor) or "packager" in executor.model_fields_set:  # else the class's own
        yield from _choice_faults(executor, "packager", executor.packager.kind, executor.facts.packagers)
    if isinstance(executor, SlurmExecutor):
        yield from _slurm_faults(executor, task)
    elif executor.packager.symlink_from_remote_dir is not None:
        yield (
            f"packager.symlink_from_remote_dir is {executor.packager.symlink_from_remote_dir!r}; only slurm "
            f"supports it, {executor.kind} would ignore it. Remove it."
        )
    is_launched = executor.launcher.kind in PROCESS_LAUNCHERS
    if isinstance(executor, LocalFields) and (executor.nodes or 1) > 1 and not is_launched:
        yield (
            f"nodes is {executor.nodes}; without torchrun only one process is started. Set kind to torchrun, or "
            "remove it."
        )


def _choice_faults(executor: Executor, field: str, kind: str, kinds: tuple[str, ...]) -> Iterator[str]:
    if kind not in kinds:
        executors = [name for name, facts in FACTS.items() if kind in getattr(facts, f"{field}s")]
        yield (
            f"{field}.kind is {kind}; nemo-run supports it for {', '.join(executors)}, not for {executor.kind}. "
            f"Allowed here: {', '.join(kinds)}. Use one of these."
        )


def _measures_gpus(executor: Executor) -> bool:
    """Return whether nemo-run puts the whole command of a task into single quotes."""
    return executor.launcher.nsys_profile and executor.launcher.nsys_gpu_metrics


def _slurm_faults(executor: SlurmExecutor, task: Task) -> Iterator[str]:
    for name in ("heterogeneous", "het_group_indices"):
        if getattr(executor, name):
            yield (
                f"{name} is {getattr(executor, name)}; heterogeneous jobs need a group of tasks, and "
                "a launch submits every task as its own job. Remove it."
            )
    if task == "train" and executor.launcher.kind == "slurm_ray":
        yield (
            "launcher.kind is slurm_ray; it runs the command on one node only, and training needs one process per "
            "GPU. Set it for build: tasks.build.executor.launcher."
        )
    if task == "train" and executor.array is not None and not executor.array.isdigit():
        indices, _, at_once = executor.array.partition("%")
        if at_once != "1":
            yield (
                f"array is {executor.array!r}; its jobs would train at the same time and write the same checkpoints. "
                f"Allowed: one at a time, so that each resumes from the last checkpoint. Write {indices}%1."
            )
