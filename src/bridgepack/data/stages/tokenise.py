"""Tokenises all ranges of a split's files into the store."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import is_streamed, iter_ranges
from bridgepack.data.stages.finish import FinishSettings, RangePlace, RangeResult
from bridgepack.data.stages.range_tasks import Tokenization, TokenizeTask, tokenize_range, try_row
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress, Runner, TaskFailure
from bridgepack.errors import DataError
from bridgepack.records import DropReason
from bridgepack.records.sequences import RowDrop

#: Maximum rows of one range that may crash their process; if there are more, the rows are not the cause.
_MAX_DEADLY_ROWS = 50
#: Times that a worker may die although each row alone works, e.g. because another process kills it.
_MAX_UNEXPLAINED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokenizing:
    """Tokenises files into a store; calls `watch` with each result."""

    how: Tokenization
    store: TokenStore
    max_row_bytes: int
    runner: Runner
    progress: Progress
    watch: Callable[[RangeResult], None]

    def results(self, files: Sequence[InputFile], hashes: Sequence[str], settings: FinishSettings) -> list[RangeResult]:
        """Return the results of all ranges of a split's files, in order; `hashes` are the files' sha256.

        Raises:
            DataError: a file cannot be read, or a row stops the build.
            StoreError, OSError: the store cannot be written.
        """
        total = None if any(map(is_streamed, files)) else sum(file.num_bytes for file in files)
        self.progress.start(f"Tokenising {settings.split}", total, "rows")
        tasks = (task for index, file in enumerate(files) for task in self._tasks(file, index, hashes[index], settings))
        found = []
        for outcome in self.runner.run(tokenize_range, tasks):
            result = rescued_range(self.runner, outcome) if isinstance(outcome, TaskFailure) else outcome
            found.append(result)
            self.progress.advance(result.num_rows, work=result.num_bytes)
            self.watch(result)
        self.progress.finish()
        return found

    def _tasks(self, file: InputFile, index: int, sha256: str, settings: FinishSettings) -> Iterator[TokenizeTask]:
        for part in iter_ranges(file, sha256=sha256, max_row_bytes=self.max_row_bytes):
            path = self.store.token_file(self.how.key, part, file.view)
            yield TokenizeTask(
                how=self.how,
                file=file,
                part=part,
                place=RangePlace(file_index=index, label=file.label, first_row=part.first_row, token_file=path),
                settings=settings,
            )


def rescued_range(runner: Runner, failure: TaskFailure) -> RangeResult:
    """Return the result of a range whose task failed, tokenised row by row, without the rows that fail alone.

    Raises:
        DataError: the rows are not the cause, or too many of them fail.
        RuntimeError: code other than a row's tokenisation raised.
    """
    task: TokenizeTask = failure.task
    skips: dict[int, RowDrop] = {}
    num_unexplained = 0
    while len(skips) <= _MAX_DEADLY_ROWS and num_unexplained <= _MAX_UNEXPLAINED:
        outcome = runner.run_alone(tokenize_range, replace(task, one_by_one=True, skips=dict(skips)))
        if not isinstance(outcome, TaskFailure):
            return outcome
        failure = outcome
        if outcome.trace and not outcome.is_memory:
            raise RuntimeError(f"a task failed in another process:\n{outcome.trace}")
        row = outcome.last_beat
        again = runner.run_alone(try_row, (task, row)) if row >= 0 else None
        if isinstance(again, TaskFailure):
            skips[row] = RowDrop(row, _reason(again), f"tokenising it: {again.detail}")
        else:
            num_unexplained += 1
    where = f"{task.place.label} from row {task.place.first_row}"
    if num_unexplained <= _MAX_UNEXPLAINED:
        raise DataError(
            f"{where}: more than {_MAX_DEADLY_ROWS} rows crash the process that tokenises them (the last: "
            f"{failure.detail}), so the rows are not the cause. Finished work is kept; try more --memory, or other "
            "versions of the tokenizer's libraries."
        )
    raise DataError(
        f"{where}: the process that tokenises it died {_MAX_UNEXPLAINED + 1} times ({failure.detail}), although each "
        "row alone works; usually memory ran out. Finished work is kept; use fewer --workers and run the same command "
        "again."
    )


def _reason(failure: TaskFailure) -> DropReason:
    """Return the drop reason of a row that fails alone."""
    if failure.kind == "stalled":
        return DropReason.TIME_OUT
    return DropReason.OUT_OF_MEMORY if failure.is_memory else DropReason.TOKENIZER_FAILED
