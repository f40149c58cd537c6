"""Waits for the tasks of an experiment in the calling thread, reports their states, and stops after a failure."""

import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import nemo_run as run
from nemo_run.run.logs import get_logs, print_log_lines
from torchx.schedulers.api import Stream
from torchx.schedulers.slurm_scheduler import SLURM_STATES
from torchx.specs.api import AppState, is_terminal

from bridgepack.launching.processes import Interruption
from bridgepack.launching.results import Listener
from bridgepack.records.launches import State

#: Polling interval in seconds for jobs on this machine, and for a cluster's jobs, queried over the network.
_POLL_HERE_S, _POLL_ELSEWHERE_S = 0.2, 5.0
#: Timeout in seconds for a job whose state nemo-run cannot tell.
_UNKNOWN_LIMIT_S = 600.0
_LOGS_LIMIT_S = 10.0
#: Name prefix of nemo-run's threads that query a job's start time, and their timeout in seconds.
#: Source: nemo_run/run/torchx_backend/schedulers/slurm.py, `schedule`.
_REPORT_THREADS, _THREAD_LIMIT_S = "slurm-start-time-", 10.0

logger = logging.getLogger(__name__)


class TaskFailedError(Exception):
    """A task did not succeed, so later tasks must not start."""


@dataclass(kw_only=True, slots=True)
class Watch:
    """Waits for jobs. Replaces nemo-run's own waiting, which cannot be interrupted and continues after a failure.

    Source: nemo_run/run/experiment.py, `_run_dag` and `_wait_for_jobs`: they wait in threads that end only with the
    job, and start the next task even if the previous one failed.
    """

    experiment: Any  #: nemo-run's experiment
    listener: Listener  #: called at every state change
    interruption: Interruption  #: recorded signals
    is_here: Callable[[str], bool]  #: returns whether a task runs on this machine
    follows_logs: bool  #: stream logs
    states: dict[str, State] = field(default_factory=dict)  #: task -> last known state
    seconds: dict[str, float] = field(default_factory=dict)  #: ended task -> duration in seconds
    _readers: dict[str, threading.Thread] = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    def wait(self, jobs: Sequence[Any]) -> None:
        """Wait until jobs have ended; nemo-run calls this after submitting them.

        Raises:
            TaskFailedError: a job did not succeed; jobs that depend on it are cancelled.
            KeyboardInterrupt: a signal asked to stop.
        """
        self.interruption.catch()
        try:
            with _log_errors_once():
                self._wait(jobs)
        finally:
            self.interruption.note()

    def _wait(self, jobs: Sequence[Any]) -> None:
        started_s = time.monotonic()
        pending = [job for job in jobs if job.launched and job.handle]
        seen_s = {job.id: started_s for job in pending}
        interval_s = _POLL_HERE_S if all(self.is_here(job.id) for job in pending) else _POLL_ELSEWHERE_S
        while pending:
            for job in list(pending):
                state = self._look(job)
                self.interruption.check()
                now_s = time.monotonic()
                if state != AppState.UNKNOWN:
                    seen_s[job.id] = now_s
                if is_terminal(state) or now_s - seen_s[job.id] > _UNKNOWN_LIMIT_S:
                    self.seconds[job.id] = round(now_s - started_s, 1)
                    self._end(job, state)
                    pending.remove(job)
            if any(self.states.get(job.id) in {"failed", "cancelled"} for job in jobs):
                for job in pending:  # they depend on the failed job
                    if job.dependencies and job.id not in self._cancelled:
                        self._cancelled.add(job.id)
                        self.experiment.cancel(job.id)
            if pending:
                time.sleep(interval_s)
        if any(self.states.get(job.id) != "succeeded" for job in jobs):
            raise TaskFailedError

    def _look(self, job: Any) -> AppState:
        state = array_state(job) if is_array(job) else job.status(runner=self.experiment._runner)
        name = state_name(state)
        if self.states.get(job.id) != name:
            self.states[job.id] = name
            self.listener(job.id, name)
        if self.follows_logs and state not in {AppState.UNKNOWN, AppState.SUBMITTED, AppState.PENDING}:
            self._read_log(job)
        return state

    def _end(self, job: Any, state: AppState) -> None:
        job.state = state
        reader = self._readers.get(job.id)
        if reader is not None:
            reader.join(timeout=_LOGS_LIMIT_S)
        job.cleanup()

    def _read_log(self, job: Any) -> None:
        if job.id in self._readers or is_array(job):  # nemo-run finds no logs of an array
            return
        reader = threading.Thread(target=_follow, args=(job.handle, self.experiment._runner), daemon=True)
        self._readers[job.id] = reader
        reader.start()


@contextmanager
def _log_errors_once() -> Iterator[None]:
    """Print no traceback of nemo-run's threads that print logs; `get_logs` raises their errors, which `_follow` says.

    A job that is cancelled before it starts has no log, for example.
    """
    before = threading.excepthook

    def report(arguments: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(arguments.exc_traceback)
        if all(frame.f_code is not print_log_lines.__code__ for frame, _ in frames):
            before(arguments)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


def _follow(handle: str, runner: Any) -> None:
    try:
        get_logs(sys.stderr, handle, regex=None, should_tail=True, runner=runner, streams=Stream.COMBINED)
    except Exception as error:  # an unreadable log must not end a launch, and nemo-run raises anything
        sys.stderr.write(f"the log cannot be followed: {type(error).__name__}: {error}\n")


def state_name(state: AppState) -> State:
    """Return bridgepack's name of a nemo-run state."""
    if state == AppState.UNSUBMITTED:
        return "not started"
    name: State = state.name.lower()
    return name if name in get_args(State) else "unknown"


def is_array(job: Any) -> bool:
    """Return whether a job is a Slurm job array."""
    return isinstance(job.executor, run.SlurmExecutor) and job.executor.array is not None


def array_state(job: Any) -> AppState:
    """Return the combined state of a job array, or UNKNOWN if Slurm does not tell.

    Source: nemo_run/run/torchx_backend/schedulers/slurm.py, `describe`: it uses only rows with the job's own id, but an
    array's rows have ids such as `12_0`, so it always returns UNKNOWN.
    """
    number = str(job.handle).rpartition("/")[2]
    try:
        answer = job.executor.tunnel.run(f"sacct --noheader --parsable2 --allocations --format=JobID,State -j {number}")
    except Exception as error:  # any connection error; the next poll may succeed
        logger.warning("sacct fails for job %s: %s", number, error)
        return AppState.UNKNOWN
    return state_of_rows(answer.stdout)


def state_of_rows(rows: str) -> AppState:
    """Return the state of a job array from its sacct rows; after all jobs have ended, the last one decides.

    The jobs of a training run in sequence, and each resumes where the previous one ran out of time. Example:
    `12_0|TIMEOUT`, `12_1|COMPLETED` -> SUCCEEDED; `12_0|COMPLETED`, `12_[1-9%1]|PENDING` -> RUNNING.
    """
    states = {}
    for row in rows.split("\n"):
        name, _, text = row.strip().partition("|")
        first_index = re.search(r"_\[?(\d+)", name)
        if first_index and text:
            states[int(first_index.group(1))] = SLURM_STATES.get(text.split()[0], AppState.UNKNOWN)
    if not states:
        return AppState.SUBMITTED
    states_in_order = [states[index] for index in sorted(states)]
    if all(is_terminal(state) for state in states_in_order):
        return states_in_order[-1]
    is_waiting = all(state in {AppState.PENDING, AppState.UNKNOWN} for state in states_in_order)
    return AppState.PENDING if is_waiting else AppState.RUNNING


def await_reports() -> None:
    """Wait until nemo-run's threads that print Slurm's estimated start times have ended.

    Leaving an experiment signals them to end but does not wait, so their output would mix with the program's.
    """
    for thread in threading.enumerate():
        if thread.name.startswith(_REPORT_THREADS):
            thread.join(_THREAD_LIMIT_S)
