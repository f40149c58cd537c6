"""Finds the rows that end a worker or make it fail, and leaves them out, so that the others become sequences."""

from __future__ import annotations

from dataclasses import replace

from bridgepack.data.stages.range_tasks import RangeResult, TokenizeTask, tokenize_range, try_row
from bridgepack.data.tasks import Runner, TaskFailure
from bridgepack.errors import DataError
from bridgepack.records import DropReason

#: Rows of one range; where more of them end their process, the rows are not what is wrong.
_MAX_ROWS = 50
#: Times that a worker may end although each row alone does no harm, as when somebody else ends it.
_MAX_UNEXPLAINED = 5


def rescued_range(runner: Runner, failure: TaskFailure) -> RangeResult:
    """Return what becomes of a range whose task failed: row by row, without the rows that fail again alone.

    Raises:
        DataError: when the rows are not to blame, or too many of them are.
        RuntimeError: when something else than a row's tokenisation raised.
    """
    task: TokenizeTask = failure.task
    skips: dict[int, tuple[str, str]] = {}
    num_unexplained = 0
    while len(skips) <= _MAX_ROWS and num_unexplained <= _MAX_UNEXPLAINED:
        outcome = runner.run_alone(tokenize_range, replace(task, one_by_one=True, skips=dict(skips)))
        if not isinstance(outcome, TaskFailure):
            return outcome
        failure = outcome
        if outcome.trace and not outcome.is_memory:
            raise RuntimeError(f"a task failed in another process:\n{outcome.trace}")
        row = outcome.last_beat
        again = runner.run_alone(try_row, replace(task, only=row)) if row >= 0 else None
        if isinstance(again, TaskFailure):
            skips[row] = _why(again)
        else:
            num_unexplained += 1
    raise DataError(_why_given_up(task, failure, len(skips)))


def _why(failure: TaskFailure) -> tuple[str, str]:
    """Return reason and detail of the drop of a row that fails alone."""
    if failure.kind == "stalled":
        return DropReason.TIME_OUT, f"tokenising it: {failure.detail}"
    reason = DropReason.OUT_OF_MEMORY if failure.is_memory else DropReason.TOKENIZER_FAILED
    return reason, f"tokenising it: {failure.detail}"


def _why_given_up(task: TokenizeTask, failure: TaskFailure, num_rows: int) -> str:
    where = f"{task.place.label} from row {task.place.first_row}"
    if num_rows > _MAX_ROWS:
        return (
            f"{where}: more than {_MAX_ROWS} rows end the process that tokenises them (the last: {failure.detail}), so "
            "it is not the rows. What is finished is kept; try more --memory, or other versions of the tokenizer's "
            "libraries."
        )
    return (
        f"{where}: the process that tokenises it ended {_MAX_UNEXPLAINED + 1} times ({failure.detail}), although each "
        "row alone does no harm, most often because memory ran out. What is finished is kept; use fewer --workers and "
        "run the same command again."
    )
