"""What a launch would submit: nemo-run's scripts, generated in a temporary folder."""

import json
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import nemo_run as run
from nemo_run.config import get_nemorun_home, set_nemorun_home
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import walk_tree

from bridgepack.config.write import recipe_to_yaml, written_values
from bridgepack.errors import LaunchError
from bridgepack.launching.experiment import add_tasks, make_experiment, output_on_stderr, reason_of, refuse_detaching
from bridgepack.launching.plan import LaunchPlan
from bridgepack.launching.processes import restore_signals
from bridgepack.launching.tasks import LaunchTask, make_tasks
from bridgepack.records.launches import DryRun, TaskScript

#: Variables that torchx sets for itself.
_TORCHX_VARIABLES = frozenset({"TORCHX_RANK0_HOST", "TORCHELASTIC_ERROR_FILE", "PET_LOG_DIR", "LOGLEVEL"})


def preview(plan: LaunchPlan, *, detach: bool = False) -> DryRun:
    """Return what a launch would submit; nothing is left behind.

    Raises:
        ConfigError: as `submit`.
        LaunchError: nemo-run cannot generate the scripts.
    """
    real_home = get_nemorun_home()
    with tempfile.TemporaryDirectory(prefix="bridgepack-") as home, output_on_stderr(), restore_signals():
        set_nemorun_home(home)
        try:
            tasks = make_tasks(plan, for_display=True)
            if detach:
                refuse_detaching(plan, tasks)
            scripts = _scripts(plan, tasks)
        finally:
            set_nemorun_home(real_home)
    scripts = [
        replace(script, text=script.text.replace(home, real_home), command=script.command.replace(home, real_home))
        for script in scripts
    ]
    return DryRun(
        outline=plan.outline(),
        recipe_text=recipe_to_yaml(plan.recipe),
        scripts=tuple(scripts),
        values=_plain_values(plan, scripts),
    )


def _plain_values(plan: LaunchPlan, scripts: Sequence[TaskScript]) -> dict[str, Any]:
    """Return a preview as plain values, for JSON."""
    return {
        "is_submitted": False,
        **plan.facts(),
        "run_folder": plan.run_folder,
        "artifacts": plan.artifacts,
        "artifact": plan.artifact,
        "notes": list(plan.notes),
        "settings": json.loads(json.dumps(plan.cluster.display_values(), default=str)),
        "resolved_recipe": written_values(plan.recipe),
        "check": plan.report.to_dict(),
        "scripts": [{**asdict(script), "depends_on": list(script.depends_on)} for script in scripts],
    }


def _scripts(plan: LaunchPlan, tasks: tuple[LaunchTask, ...]) -> list[TaskScript]:
    try:
        experiment = make_experiment(plan)
        with experiment:
            add_tasks(experiment, tasks)
            experiment.dryrun(log=False, delete_exp_dir=False)
            jobs = {job.id: job for job in experiment.jobs}
            return [_script(task, jobs[task.name]) for task in tasks]
    except Exception as error:  # nemo-run and its packagers, SkyPilot etc. raise anything
        raise LaunchError(f"nemo-run cannot make the scripts: {reason_of(error)}. Correct the cluster file.") from error


def _script(task: LaunchTask, job: Any) -> TaskScript:
    request, executor, command = job._dryrun_info.request, job.executor, ""
    match executor:
        case run.LocalExecutor():
            title, text = "command on this machine", _local_command(request)
        case run.SlurmExecutor():
            title, text, command = "script for sbatch", request.materialize(), _sbatch(task, request, executor)
        case run.SkypilotExecutor() | run.SkypilotJobsExecutor():
            title, text = "task of SkyPilot", _as_yaml(request.task.to_yaml_config())
        case _:
            commands = [request.cmd] if hasattr(request, "cmd") else [item.command for item in request.containers]
            title = f"command for {type(executor).__name__}"
            script_files = Path(executor.job_dir, "launch.sh"), Path(executor.experiment_dir, "torchrun_job.sh")
            scripts = [path.read_text(encoding="utf-8") for path in script_files if path.is_file()]
            text = "\n".join([*map(" ".join, commands), *scripts, "", _settings(executor)])
    return TaskScript(task=task.name, title=title, command=command, depends_on=task.dependencies, text=text)


def _local_command(request: Any) -> str:
    lines = []
    for replica in (replica for replicas in request.role_params.values() for replica in replicas):
        for name in sorted(replica.env.keys() - _TORCHX_VARIABLES):
            inherited_path = ":$PATH" if name == "PATH" else ""  # torchx puts its PATH before the inherited one
            lines.append(f"export {name}={shlex.quote(replica.env[name])}{inherited_path}")
        lines.append(shlex.join(replica.args))
    return "\n".join(lines)


def _sbatch(task: LaunchTask, request: Any, executor: Any) -> str:
    words = list(request.launch_cmd)
    if task.dependencies:
        jobs = ":".join(f"JOB_OF_{name.upper()}" for name in task.dependencies)
        words.append(f"--dependency={executor.dependency_type}:{jobs}")
    return " ".join([*words, f"{executor.tunnel.job_dir}/{executor.job_name}_sbatch.sh"])


def _settings(executor: Any) -> str:
    values = {field.name: getattr(executor, field.name) for field in fields(executor) if not field.name.startswith("_")}
    plain = {
        name: value
        for name, value in values.items()
        if isinstance(value, str | int | float | list | dict) and value not in ("", [], {})
    }
    return "".join(f"# {line}\n" for line in _as_yaml(plain).splitlines())


def _as_yaml(value: Any) -> str:
    writer, text = YAML(typ="rt", pure=True), StringIO()
    writer.width = 10**6
    walk_tree(value)  # texts of several lines become blocks
    writer.dump(value, text)
    return text.getvalue()
