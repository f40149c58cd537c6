"""Waits for the tasks of an experiment in the calling thread, tells of their states, and stops after a failure."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nemo_run.run.logs import get_logs
from torchx.schedulers.api import Stream
from torchx.specs.api import AppState

from bridgepack.launch.processes import Interruption
from bridgepack.launch.results import State
from bridgepack.launch.slurm_jobs import array_state, is_array

#: Seconds between looks at jobs of this machine, and at those of a cluster, which is asked over the network.
_POLL_HERE_S, _POLL_ELSEWHERE_S = 0.2, 5.0
#: Seconds after which a job whose state nemo-run cannot tell is waited for no longer.
_UNKNOWN_LIMIT_S = 600.0
_LOGS_LIMIT_S = 10.0
_ENDED = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})


class Listener(Protocol):
    """Is told of what happens to the tasks."""

    def __call__(self, task: str, state: State) -> None:
        """Take note that a task has come to a state."""


class TaskFailedError(Exception):
    """A task did not succeed; those after it are not to start."""


class Watch:
    """Waits for jobs in place of nemo-run's own waiting, which cannot be interrupted and goes on after a failure.

    Source: nemo_run/run/experiment.py, `_run_dag` and `_wait_for_jobs`: they wait in threads that only the end of a job
    ends, and start the next task whatever became of the one before.

    Attributes:
        states: task -> the last state that was seen.
        seconds: task -> how long it took, once it has ended.
    """

    def __init__(
        self,
        experiment: Any,
        listener: Listener,
        interruption: Interruption,
        *,
        is_here: Callable[[str], bool],
        follows_logs: bool,
    ) -> None:
        self.states: dict[str, State] = {}
        self.seconds: dict[str, float] = {}
        self._experiment = experiment
        self._listener = listener
        self._interruption = interruption
        self._is_here = is_here
        self._follows_logs = follows_logs
        self._readers: dict[str, threading.Thread] = {}
        self._cancelled: set[str] = set()

    def wait(self, jobs: Sequence[Any]) -> None:
        """Wait until jobs have ended; nemo-run calls this once they are submitted.

        Raises:
            TaskFailedError: one of them did not succeed; those that wait for it are cancelled.
            KeyboardInterrupt: a signal asked to stop.
        """
        self._interruption.catch()
        try:
            self._wait(jobs)
        finally:
            self._interruption.note()

    def _wait(self, jobs: Sequence[Any]) -> None:
        started_s = time.monotonic()
        pending = [job for job in jobs if job.launched and job.handle]
        seen_s = {job.id: started_s for job in pending}
        interval_s = _POLL_HERE_S if all(self._is_here(job.id) for job in pending) else _POLL_ELSEWHERE_S
        while pending:
            for job in list(pending):
                state = self._look(job)
                self._interruption.check()
                now_s = time.monotonic()
                if state != AppState.UNKNOWN:
                    seen_s[job.id] = now_s
                if state in _ENDED or now_s - seen_s[job.id] > _UNKNOWN_LIMIT_S:
                    self.seconds[job.id] = now_s - started_s
                    self._end(job, state)
                    pending.remove(job)
            if any(self.states.get(job.id) in {"failed", "cancelled"} for job in jobs):
                self._cancel(pending)
            if pending:
                time.sleep(interval_s)
        if any(self.states.get(job.id) != "succeeded" for job in jobs):
            raise TaskFailedError

    def _look(self, job: Any) -> AppState:
        state = array_state(job) if is_array(job) else job.status(runner=self._experiment._runner)
        self._note(job.id, state)
        if self._follows_logs and state not in {AppState.UNKNOWN, AppState.SUBMITTED, AppState.PENDING}:
            self._read_log(job)
        return state

    def _note(self, task: str, state: AppState) -> None:
        name = state_name(state)
        if self.states.get(task) != name:
            self.states[task] = name
            self._listener(task, name)

    def _end(self, job: Any, state: AppState) -> None:
        job.state = state
        reader = self._readers.get(job.id)
        if reader is not None:
            reader.join(timeout=_LOGS_LIMIT_S)
        job.cleanup()

    def _cancel(self, jobs: list[Any]) -> None:
        """Cancel jobs that wait for one that failed."""
        for job in jobs:
            if job.dependencies and job.id not in self._cancelled:
                self._cancelled.add(job.id)
                self._experiment.cancel(job.id)

    def _read_log(self, job: Any) -> None:
        """Print the log of a job as it grows, in a thread that ends with the job."""
        if job.id in self._readers or is_array(job):  # nemo-run finds no logs of an array
            return
        arguments = {
            "file": sys.stderr,
            "identifier": job.handle,
            "regex": None,
            "should_tail": True,
            "runner": self._experiment._runner,
            "streams": Stream.COMBINED,
        }
        reader = threading.Thread(target=_read, kwargs=arguments, daemon=True)
        self._readers[job.id] = reader
        reader.start()


def _read(**arguments: Any) -> None:
    try:
        get_logs(**arguments)
    except Exception as error:  # a log that cannot be read must not end a launch, and nemo-run raises anything
        sys.stderr.write(f"the log cannot be followed: {type(error).__name__}: {error}\n")


def state_name(state: AppState) -> State:
    """Return a state in our words."""
    names: dict[AppState, State] = {
        AppState.UNSUBMITTED: "not started",
        AppState.SUBMITTED: "submitted",
        AppState.PENDING: "pending",
        AppState.RUNNING: "running",
        AppState.SUCCEEDED: "succeeded",
        AppState.FAILED: "failed",
        AppState.CANCELLED: "cancelled",
    }
    return names.get(state, "unknown")
