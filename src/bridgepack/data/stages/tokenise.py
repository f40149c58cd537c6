"""Every range of a split's files -> token files in the store, and what becomes of their rows."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import InputRange, is_streamed, iter_ranges
from bridgepack.data.stages.finish import FinishSettings, RangePlace, RangeResult
from bridgepack.data.stages.range_tasks import Tokenization, TokenizeTask, tokenize_range, try_row
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress, Runner, TaskFailure
from bridgepack.errors import DataError, StoreError
from bridgepack.records import DropReason
from bridgepack.records.token_batches import RowDrop

#: Times that files are gone through: a second time only where tokens that were there turn out to be broken.
_MAX_ROUNDS = 3
#: Rows of one range that may end their process; where there are more, the rows are not what is wrong.
_MAX_DEADLY_ROWS = 50
#: Times that a worker may end although each row alone does no harm, as when somebody else ends it.
_MAX_UNEXPLAINED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokenizing:
    """Tokenises files into a store; `watch` is told of each result as it comes."""

    how: Tokenization
    store: TokenStore
    max_row_bytes: int
    runner: Runner
    progress: Progress
    watch: Callable[[RangeResult], None]

    def results(self, files: Sequence[InputFile], hashes: Sequence[str], settings: FinishSettings) -> list[RangeResult]:
        """Return what becomes of every range of a split's files, whose sha256 are `hashes`, in order.

        Raises:
            DataError: when a file cannot be read, or a row stops the build.
            StoreError, OSError: when the store cannot be written.
        """
        total = None if any(map(is_streamed, files)) else sum(file.num_bytes for file in files)
        self.progress.start(f"Tokenising {settings.split}", total, "rows")
        found: dict[tuple[int, int], RangeResult] = {}
        wanted: Collection[int] = range(len(files))
        for _ in range(_MAX_ROUNDS):
            tasks = (task for index in wanted for task in self._tasks(files[index], index, hashes[index], settings))
            for outcome in self.runner.run(tokenize_range, tasks):
                result = rescued_range(self.runner, outcome) if isinstance(outcome, TaskFailure) else outcome
                found[result.place.file_index, result.place.first_row] = result
                self.progress.advance(result.num_rows, work=result.num_bytes)
                self.watch(result)
            wanted = sorted({result.place.file_index for result in found.values() if not result.parts})
            if not wanted:
                self.progress.finish()
                return [found[place] for place in sorted(found)]
        raise StoreError(
            f"the token store {str(self.store.folder)!r} does not keep what is written to it. Choose another --store."
        )

    def _tasks(self, file: InputFile, index: int, sha256: str, settings: FinishSettings) -> Iterator[TokenizeTask]:
        for part in self._ranges(file, index, sha256):
            path = self.store.token_file(self.how.key, part, file.view)
            yield TokenizeTask(
                how=self.how,
                file=file,
                part=replace(part, payload=None) if part.payload is not None and path.exists() else part,
                place=RangePlace(file_index=index, label=file.label, first_row=part.first_row, token_file=path),
                settings=settings,
            )

    def _ranges(self, file: InputFile, index: int, sha256: str) -> Iterator[InputRange]:
        """Yield a file's ranges; a file that is streamed is read only where a range's tokens are not there."""
        parts = iter_ranges(file, index, sha256=sha256, max_row_bytes=self.max_row_bytes)
        if not is_streamed(file):
            yield from parts
            return
        name = f"{sha256}-{file.kind}-{self.max_row_bytes}"
        known = [
            InputRange(file_index=index, first_row=row, num_rows=num_rows, sha256=content)
            for row, num_rows, content in self.store.read_ranges(name) or ()
        ]
        if known and all(self.store.token_file(self.how.key, part, file.view).exists() for part in known):
            yield from known
            return
        ranges = []
        for part in parts:
            ranges.append((part.first_row, part.num_rows, part.sha256))
            yield part
        self.store.write_ranges(name, ranges)


def rescued_range(runner: Runner, failure: TaskFailure) -> RangeResult:
    """Return what becomes of a range whose task failed: row by row, without the rows that fail again alone.

    Raises:
        DataError: when the rows are not to blame, or too many of them are.
        RuntimeError: when something else than a row's tokenisation raised.
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
            f"{where}: more than {_MAX_DEADLY_ROWS} rows end the process that tokenises them (the last: "
            f"{failure.detail}), so it is not the rows. What is finished is kept; try more --memory, or other versions "
            "of the tokenizer's libraries."
        )
    raise DataError(
        f"{where}: the process that tokenises it ended {_MAX_UNEXPLAINED + 1} times ({failure.detail}), although each "
        "row alone does no harm, most often because memory ran out. What is finished is kept; use fewer --workers and "
        "run the same command again."
    )


def _reason(failure: TaskFailure) -> DropReason:
    """Return why a row that fails alone is dropped."""
    if failure.kind == "stalled":
        return DropReason.TIME_OUT
    return DropReason.OUT_OF_MEMORY if failure.is_memory else DropReason.TOKENIZER_FAILED
