"""What a launch would submit: the scripts as nemo-run makes them, in a folder that goes afterwards."""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import nemo_run as run
from nemo_run.config import get_nemorun_home, set_nemorun_home
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from bridgepack.config.write import recipe_to_yaml, written_values
from bridgepack.errors import LaunchError
from bridgepack.launch.experiment import add_tasks, make_experiment, output_on_stderr, refuse_detaching
from bridgepack.launch.plan import LaunchPlan
from bridgepack.launch.processes import restored_signals
from bridgepack.launch.tasks import LaunchTask, make_tasks
from bridgepack.report.text import printable
from bridgepack.rules.engine.text import report_to_dict


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskScript:
    """What would be submitted for one task."""

    task: str  #: build, check or train
    title: str  #: what the text is
    command: str  #: what submits it; empty where a program and no command does
    depends_on: tuple[str, ...]  #: tasks that must have succeeded before
    text: str  #: the script, manifest or command


@dataclass(frozen=True, kw_only=True, slots=True)
class DryRun:
    """A launch that was not made."""

    plan: LaunchPlan  #: what it would do
    scripts: tuple[TaskScript, ...]  #: what would be submitted, in order

    @property
    def recipe_text(self) -> str:
        """The recipe with every override, as YAML."""
        return recipe_to_yaml(self.plan.recipe)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        plan = self.plan
        return {
            "is_submitted": False,
            **plan.facts(),
            "run_folder": plan.run_folder,
            "artifacts": plan.artifacts,
            "artifact": plan.artifact,
            "notes": list(plan.notes),
            "settings": json.loads(json.dumps(plan.cluster.shown(), default=str)),
            "resolved_recipe": written_values(plan.recipe),
            "check": report_to_dict(plan.report),
            "scripts": [{**asdict(script), "depends_on": list(script.depends_on)} for script in self.scripts],
        }


def preview(plan: LaunchPlan, *, detach: bool = False) -> DryRun:
    """Return what a launch would submit; nothing is left behind.

    Raises:
        ConfigError: as `submit`.
        LaunchError: nemo-run cannot make the scripts.
    """
    with _temporary_home() as (home, real_home), output_on_stderr(), restored_signals():
        tasks = make_tasks(plan, for_display=True)
        if detach:
            refuse_detaching(plan, tasks)
        scripts = _scripts(plan, tasks)
    return DryRun(plan=plan, scripts=tuple(_at_home(script, home, real_home) for script in scripts))


def _scripts(plan: LaunchPlan, tasks: tuple[LaunchTask, ...]) -> list[TaskScript]:
    try:
        experiment = make_experiment(plan)
        with experiment:
            add_tasks(experiment, tasks)
            experiment.dryrun(log=False, delete_exp_dir=False)
            jobs = {job.id: job for job in experiment.jobs}
            return [_script(task, jobs[task.name]) for task in tasks]
    except Exception as error:  # nemo-run and what it calls raise anything: packagers, SkyPilot, assertions
        reason = printable(" ".join(str(error).split()))[:2000] or "no reason was given"
        raise LaunchError(
            f"nemo-run cannot make the scripts: {type(error).__name__}: {reason}. Correct the cluster file."
        ) from error


def _script(task: LaunchTask, job: Any) -> TaskScript:
    """Return what nemo-run has made of a task, in the form in which it goes out."""
    request, executor = job._dryrun_info.request, job.executor
    command = ""
    if isinstance(executor, run.LocalExecutor):
        title, text = "command on this machine", _local_command(request)
    elif isinstance(executor, run.SlurmExecutor):
        title, text = "script for sbatch", request.materialize()
        command = _sbatch(task, request, executor)
    elif isinstance(executor, run.KubeflowExecutor):
        title, text = "manifest of Kubernetes", _kubeflow(request, executor)
    elif isinstance(executor, (run.SkypilotExecutor, run.SkypilotJobsExecutor)):
        title, text = "task of SkyPilot", _as_yaml(request.task.to_yaml_config())
    elif isinstance(executor, run.DGXCloudExecutor):
        script = Path(executor.experiment_dir, "torchrun_job.sh").read_text(encoding="utf-8")
        title, text = "script on DGX Cloud", f"{script}\n{_settings(executor)}"
    else:
        commands = [request.cmd] if hasattr(request, "cmd") else [one.command for one in request.containers]
        title = f"command for {type(executor).__name__}"
        text = "\n".join([*(" ".join(words) for words in commands), "", _settings(executor)])
    return TaskScript(task=task.name, title=title, text=text, command=command, depends_on=task.dependencies)


def _local_command(request: Any) -> str:
    """Return the commands of a request of torchx, with the variables that are set for them."""
    lines = []
    for replicas in request.role_params.values():
        for replica in replicas:
            shown = {name: value for name, value in replica.env.items() if name not in _TORCHX_VARIABLES}
            # torchx puts its PATH before the inherited one.
            lines += [
                f"export {name}={shlex.quote(value)}{':$PATH' if name == 'PATH' else ''}"
                for name, value in sorted(shown.items())
            ]
            lines.append(shlex.join(replica.args))
    return "\n".join(lines)


#: Variables that torchx sets for itself.
_TORCHX_VARIABLES = frozenset({"TORCHX_RANK0_HOST", "TORCHELASTIC_ERROR_FILE", "PET_LOG_DIR", "LOGLEVEL"})


def _sbatch(task: LaunchTask, request: Any, executor: Any) -> str:
    words = list(request.launch_cmd)
    if task.dependencies:
        jobs = ":".join(f"JOB_OF_{name.upper()}" for name in task.dependencies)
        words.append(f"--dependency={executor.dependency_type}:{jobs}")
    return " ".join([*words, f"{executor.tunnel.job_dir}/{executor.job_name}_sbatch.sh"])


def _kubeflow(request: Any, executor: Any) -> str:
    """Return the TrainJob, and the script in it where nemo-run copies one to a volume."""
    manifest = _as_yaml(executor.get_job_body(executor._trainjob_name(request.name), request.cmd))
    script = Path(executor.job_dir, "launch.sh")
    if executor.workdir_pvc and script.is_file():
        manifest += f"---\n# {executor.code_dir}/launch.sh\n{script.read_text(encoding='utf-8')}"
    return manifest


def _settings(executor: Any) -> str:
    """Return the fields of an executor that say something, as comments in YAML; its parts have no such form."""
    values = {field.name: getattr(executor, field.name) for field in fields(executor) if not field.name.startswith("_")}
    plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN) and value not in _EMPTY}
    return "".join(f"# {line}\n" for line in _as_yaml(plain).splitlines())


_PLAIN = (str, int, float, list, dict)
_EMPTY: tuple[Any, ...] = ("", [], {})


def _as_yaml(value: Any) -> str:
    writer, text = YAML(typ="rt", pure=True), StringIO()
    writer.width = 10**6
    writer.dump(_with_blocks(value), text)
    return text.getvalue()


def _with_blocks(value: Any) -> Any:
    """Return plain values in which texts of several lines are written as such."""
    if isinstance(value, dict):
        return {name: _with_blocks(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_blocks(item) for item in value]
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value


@contextlib.contextmanager
def _temporary_home() -> Iterator[tuple[str, str]]:
    """Give nemo-run a home that goes afterwards; give its path and that of the real one."""
    real_home = get_nemorun_home()
    with tempfile.TemporaryDirectory(prefix="bridgepack-") as home:
        set_nemorun_home(home)
        try:
            yield home, real_home
        finally:
            set_nemorun_home(real_home)


def _at_home(script: TaskScript, home: str, real_home: str) -> TaskScript:
    """Return a script with the paths that it would have."""
    text, command = (words.replace(home, real_home) for words in (script.text, script.command))
    return replace(script, text=text, command=command)
