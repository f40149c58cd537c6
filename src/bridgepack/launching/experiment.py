"""Submits a plan as one nemo-run experiment; only `submit` has side effects."""

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import nemo_run as run
from nemo_run.config import get_nemorun_home
from rich.console import Console
from torchx.schedulers.local_scheduler import SignalException
from torchx.specs.api import is_terminal

from bridgepack.config.cluster.executors import LOCAL_KINDS
from bridgepack.errors import ConfigError, LaunchError
from bridgepack.launching.plan import LaunchPlan
from bridgepack.launching.processes import Interruption, block_interrupts, end_processes, restore_signals
from bridgepack.launching.results import LaunchInterrupt, Listener, log_end
from bridgepack.launching.tasks import RUN_VARIABLE, LaunchTask, is_on_this_machine, make_tasks
from bridgepack.launching.watching import TaskFailedError, Watch, await_reports, state_name
from bridgepack.records.launches import ALIVE, LaunchResult, State, TaskResult
from bridgepack.reporting.text import printable


def submit(
    plan: LaunchPlan,
    *,
    tasks: Sequence[LaunchTask] | None = None,
    detach: bool = False,
    follow: bool = False,
    listener: Listener | None = None,
) -> LaunchResult:
    """Submit the tasks of a plan in order and return their results.

    A task starts after the previous one has succeeded: on Slurm through afterok dependencies, elsewhere this process
    starts them one by one. Output of nemo-run and followed logs goes to standard error.

    `tasks` are the tasks of `make_tasks(plan)` with changes such as plugins. The other arguments are those of
    `bridgepack.launch`.

    Raises:
        ConfigError: the plan cannot run detached, or a folder cannot be written.
        LaunchError: nemo-run could not submit a task; tasks submitted before it are cancelled.
        LaunchInterrupt: a signal asked to stop; processes on this machine have been ended.
    """
    if listener is not None and not callable(listener):
        raise ConfigError(f"listener is {listener!r}; allowed: a function of a task's name and its state, or None.")
    tasks = make_tasks(plan) if tasks is None else tasks
    if detach:
        refuse_detaching(plan, tasks)
    _make_folders(plan)
    with output_on_stderr(), restore_signals():
        launch = _Launch(plan, tasks, listener or (lambda _task, _state: None), follow=follow)
        try:
            return launch.run(detach=detach)
        finally:
            await_reports()


def make_experiment(plan: LaunchPlan) -> run.Experiment:
    """Return an experiment without tasks, named after the run; nothing is written before it runs."""
    experiment = run.Experiment(
        plan.recipe.name,
        id=plan.run_name,
        log_level="WARNING",
        enable_goodbye_message=False,
        skip_status_at_exit=True,
        # Otherwise executor settings, which may be secret, would be copied to the cluster.
        serialize_metadata_for_scripts=False,
    )
    # Its clean_mode does the same but persists: `nemo experiment status` would print nothing afterwards.
    experiment.console = Console(quiet=True)
    return experiment


def add_tasks(experiment: run.Experiment, tasks: Sequence[LaunchTask]) -> None:
    """Add tasks to an entered experiment."""
    for task in tasks:
        experiment.add(
            task.script,
            executor=task.executor,
            name=task.name,
            plugins=list(task.plugins),
            dependencies=list(task.dependencies),
        )


def refuse_detaching(plan: LaunchPlan, tasks: Sequence[LaunchTask]) -> None:
    """Check that the tasks of a plan continue in order without this process.

    Raises:
        ConfigError: they do not.
    """
    kinds = {task.name: plan.cluster.executor_for(task.name).kind for task in tasks}
    for name, kind in kinds.items():
        if is_on_this_machine(plan.cluster, name):
            raise ConfigError(
                f"--detach: the {name} task runs on this machine ({kind}) and ends with this command. Remove --detach; "
                "to leave the terminal, start the command in tmux or with nohup."
            )
    if len(tasks) > 1 and not all(isinstance(task.executor, run.SlurmExecutor) for task in tasks):
        raise ConfigError(
            f"--detach: only Slurm itself runs {', '.join(kinds)} in order; elsewhere this command starts each "
            "task after the previous one. Remove --detach, or launch a single task with --skip."
        )
    for task in tasks:
        if not isinstance(task.executor, run.Experiment._DETACH_SUPPORTED_EXECUTORS):
            raise ConfigError(f"--detach: nemo-run cannot detach from a task on {kinds[task.name]}. Remove --detach.")


class _Launch:
    """One submission and its state."""

    def __init__(self, plan: LaunchPlan, tasks: Sequence[LaunchTask], listener: Listener, *, follow: bool) -> None:
        self.plan = plan
        self.tasks = tasks
        self.experiment = make_experiment(plan)
        self.interruption = Interruption()
        self.is_here = partial(is_on_this_machine, plan.cluster)
        self.watch = Watch(
            experiment=self.experiment,
            listener=listener,
            interruption=self.interruption,
            is_here=self.is_here,
            follows_logs=follow,
        )
        self.is_detached = False

    def run(self, *, detach: bool) -> LaunchResult:
        # nemo-run's own waiting cannot be interrupted and continues after a failure.
        self.experiment._wait_for_jobs = self.watch.wait
        self.interruption.note()
        try:
            with self.experiment:
                add_tasks(self.experiment, self.tasks)
                try:
                    self.experiment.run(detach=detach)
                except TaskFailedError:
                    self.experiment._save_jobs()
            self.interruption.check()
            self.is_detached = detach
        except TaskFailedError:
            pass
        except (KeyboardInterrupt, SignalException):
            self._interrupt()
        except Exception as error:  # nemo-run, SSH, sbatch, Docker etc. raise anything
            if self.interruption.has_come:  # a terminal also sends its signal to nemo-run's child processes
                self._interrupt()
            jobs = ", ".join(task.name for task in self.result().alive)
            self._stop(only_here=False)
            raise LaunchError(
                f"nemo-run could not submit the run: {reason_of(error)}."
                f"{f' {jobs} had been submitted and was cancelled.' if jobs else ''} The scripts are in "
                f"{self.experiment._exp_dir}. Correct the cause; --dry-run shows what is submitted."
            ) from error
        return self.result()

    def _interrupt(self) -> NoReturn:
        self._stop(only_here=True)
        raise LaunchInterrupt(self.result(), self.interruption.code) from None

    def result(self) -> LaunchResult:
        jobs = {job.id: job for job in self.experiment.jobs}
        return LaunchResult(
            run_name=self.plan.run_name,
            run_folder=self.plan.run_folder,
            experiment_folder=str(self.experiment._exp_dir),
            tasks=tuple(self._task_result(task, jobs.get(task.name)) for task in self.tasks),
            is_detached=self.is_detached,
        )

    def _task_result(self, task: LaunchTask, job: Any) -> TaskResult:
        state: State = self.watch.states.get(task.name, "not started")
        if state == "not started" and job is not None and job.launched:
            state = state_name(job.state) if is_terminal(job.state) else "submitted"
        log = _log_of(job)
        return TaskResult(
            name=task.name,
            executor=self.plan.cluster.executor_for(task.name).kind,
            state=state,
            job=str(job.handle).partition("://")[2].rpartition("/")[2] if job is not None and job.handle else "",
            log=log,
            log_end=log_end(log) if state in {"failed", "unknown"} else (),
            seconds=self.watch.seconds.get(task.name),
        )

    def _stop(self, *, only_here: bool) -> None:
        """Cancel all submitted tasks, or only those on this machine, which nothing else would end."""
        with block_interrupts():
            for job in self.experiment.jobs:
                is_alive = job.handle and self.watch.states.get(job.id, "submitted") in ALIVE
                if is_alive and (self.is_here(job.id) or not only_here):
                    self.experiment.cancel(job.id)
                    self.watch.states[job.id] = "cancelled"
            if any(self.plan.cluster.executor_for(task.name).kind in LOCAL_KINDS for task in self.tasks):
                end_processes(RUN_VARIABLE, self.plan.run_name)


def reason_of(error: Exception) -> str:
    """Return the message of an error of nemo-run on one line."""
    reason = printable(" ".join(str(error).split()))[:2000] or "no reason was given"
    return f"{type(error).__name__}: {reason}"


def _log_of(job: Any) -> str:
    if job is None or not job.handle:
        return ""
    executor = job.executor
    if isinstance(executor, run.SlurmExecutor):
        return executor.job_details.folder or os.path.join(executor.tunnel.job_dir, Path(executor.job_dir).name)  # noqa: PTH118
    if isinstance(executor, run.LocalExecutor):
        logs = sorted(Path(executor.job_dir).glob("nemo_run/*/*/0/combined.log"))
        return str(logs[-1]) if logs else str(executor.job_dir)
    return str(executor.job_dir) if isinstance(executor, run.DockerExecutor) else ""


def _make_folders(plan: LaunchPlan) -> None:
    local_tasks = [task for task in plan.tasks if plan.cluster.executor_for(task).kind in LOCAL_KINDS]
    if any(plan.cluster.processes(task).has_process_launcher for task in local_tasks):
        folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        if shutil.which("torchrun", path=folders) is None:
            raise ConfigError(
                "executor.launcher.kind is torchrun; torchrun is neither in PATH nor beside this Python. Install "
                'PyTorch here, e.g. pip install -e ".[bridge]" in a clone of bridgepack, or use another cluster.'
            )
    _make(Path(get_nemorun_home()) / "experiments", "NEMORUN_HOME", get_nemorun_home())
    if local_tasks:
        _make(Path(plan.run_folder), "workspace", plan.cluster.workspace)


def _make(folder: Path, field: str, value: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied", str(folder))
    except OSError as error:
        raise ConfigError(
            f"{field} is {str(value)!r}; {str(folder)!r} cannot be written: {error.strerror}. Set it to a "
            "writable folder."
        ) from None


@contextlib.contextmanager
def output_on_stderr() -> Iterator[None]:
    """Redirect nemo-run's output and logs to standard error, then restore the program's logging.

    Commands that nemo-run starts get no standard input.
    """
    root = logging.getLogger()
    handlers, level, stdin = list(root.handlers), root.level, sys.stdin
    try:
        with contextlib.redirect_stdout(sys.stderr), Path(os.devnull).open(encoding="utf-8") as empty_stream:
            sys.stdin = empty_stream
            yield
    finally:
        sys.stdin = stdin
        root.handlers[:] = handlers
        root.setLevel(level)
