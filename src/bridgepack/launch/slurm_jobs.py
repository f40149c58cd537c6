"""What nemo-run does not do for Slurm jobs: tell the state of an array, and wait until its threads print no more."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import nemo_run as run
from torchx.schedulers.slurm_scheduler import SLURM_STATES
from torchx.specs.api import AppState

#: How the threads begin in which nemo-run asks when a job will start.
#: Source: nemo_run/run/torchx_backend/schedulers/slurm.py, `schedule`.
_REPORT_THREADS = "slurm-start-time-"
#: How long such a thread may take to notice that it is to end.
_THREAD_LIMIT_S = 10.0
_ENDED = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})

logger = logging.getLogger(__name__)


def is_array(job: Any) -> bool:
    """Say whether a job of an experiment is an array of Slurm."""
    return isinstance(job.executor, run.SlurmExecutor) and job.executor.array is not None


def array_state(job: Any) -> AppState:
    """Return the state of a job array as one, or UNKNOWN where Slurm does not tell.

    Source: nemo_run/run/torchx_backend/schedulers/slurm.py, `describe`: it takes only rows with the job's own id, and
    those of an array are `12_0`, so that it says UNKNOWN for ever.
    """
    number = str(job.handle).rpartition("/")[2]
    try:
        answer = job.executor.tunnel.run(f"sacct --noheader --parsable2 --allocations --format=JobID,State -j {number}")
    except Exception as error:  # whatever the connection raises; the next look may succeed
        logger.warning("sacct fails for job %s: %s", number, error)
        return AppState.UNKNOWN
    return state_of_rows(answer.stdout)


def state_of_rows(rows: str) -> AppState:
    """Return the state of an array from sacct's rows of it; once all its jobs have ended, the last one decides.

    The jobs of a training follow one another, and each goes on where the one before ran out of time. Example:
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
    ordered = [states[index] for index in sorted(states)]
    if all(state in _ENDED for state in ordered):
        return ordered[-1]
    is_waiting = all(state in {AppState.PENDING, AppState.UNKNOWN} for state in ordered)
    return AppState.PENDING if is_waiting else AppState.RUNNING


def await_reports() -> None:
    """Return once nemo-run's threads have ended that print when Slurm expects jobs to start.

    Leaving an experiment tells them to end, and does not wait: what they still print would come between what the
    program itself prints.
    """
    for thread in threading.enumerate():
        if thread.name.startswith(_REPORT_THREADS):
            thread.join(_THREAD_LIMIT_S)
