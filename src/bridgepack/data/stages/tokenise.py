"""Every range of a split's files -> token files in the store, and what becomes of their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import InputRange, is_streamed, iter_ranges
from bridgepack.data.stages.finish import FinishSettings, RangePlace
from bridgepack.data.stages.range_tasks import RangeResult, TokenizeTask, tokenize_range
from bridgepack.data.stages.rescue import rescued_range
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress, Runner, TaskFailure
from bridgepack.errors import StoreError

#: Times that files are gone through: a second time only where tokens that were there turn out to be broken.
_MAX_ROUNDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitInputs:
    """The files of a split.

    Attributes:
        name: `training` or `validation`.
        files: in order.
        hashes: sha256 of each.
    """

    name: str
    files: Sequence[InputFile]
    hashes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokenizing:
    """Tokenises files into a store.

    Attributes:
        store: where tokens go.
        tokenization: key of the tokenisation.
        recipe_json: the recipe.
        engine: what encodes texts.
        num_input_bytes: of all inputs.
        max_row_bytes: largest row.
        text_bytes: text of the rows that are tokenised together.
        runner: runs the tasks.
        progress: told how far it is.
        watch: told of each result as it comes.
    """

    store: TokenStore
    tokenization: str
    recipe_json: str
    engine: str
    num_input_bytes: int
    max_row_bytes: int
    text_bytes: int
    runner: Runner
    progress: Progress
    watch: Callable[[RangeResult], None]

    def results(self, inputs: SplitInputs, settings: FinishSettings) -> list[RangeResult]:
        """Return what becomes of every range of a split's files, in order.

        Raises:
            DataError: when a file cannot be read, or a row stops the build.
            StoreError, OSError: when the store cannot be written.
        """
        sizes = [file.num_bytes for file in inputs.files]
        total = None if any(map(is_streamed, inputs.files)) else sum(sizes)
        self.progress.start(f"Tokenising {inputs.name}", total, "rows")
        found: dict[int, RangeResult] = {}
        starts: dict[int, int] = {0: 0}
        wanted: Collection[int] = range(len(inputs.files))
        for _ in range(_MAX_ROUNDS):
            for outcome in self.runner.run(tokenize_range, self._tasks(inputs, settings, wanted, starts)):
                result = rescued_range(self.runner, outcome) if isinstance(outcome, TaskFailure) else outcome
                found[result.place.position] = result
                num_rows = result.finished.num_rows if result.finished is not None else 0
                self.progress.advance(num_rows, work=result.num_bytes)
                self.watch(result)
            wanted = {result.place.file_index for result in found.values() if result.finished is None}
            if not wanted:
                self.progress.finish()
                return [found[position] for position in range(len(found))]
        raise StoreError(
            f"the token store {str(self.store.folder)!r} does not keep what is written to it. Choose another --store."
        )

    def _tasks(
        self, inputs: SplitInputs, settings: FinishSettings, wanted: Collection[int], starts: dict[int, int]
    ) -> Iterator[TokenizeTask]:
        """Yield a task for each range of the wanted files; `starts` keeps where each file's ranges begin."""
        for index, file in enumerate(inputs.files):
            if index not in wanted:
                continue
            position = starts[index]
            for part in self._ranges(file, index, inputs.hashes[index]):
                place = RangePlace(position=position, file_index=index, label=file.label, first_row=part.first_row)
                yield self._task(file, part, place, settings)
                position += 1
            starts[index + 1] = position

    def _task(self, file: InputFile, part: InputRange, place: RangePlace, settings: FinishSettings) -> TokenizeTask:
        token_file = self.store.token_file(self.tokenization, part)
        return TokenizeTask(
            recipe_json=self.recipe_json,
            file=file,
            part=replace(part, payload=None) if part.payload is not None and token_file.exists() else part,
            token_file=token_file,
            place=place,
            settings=settings,
            engine=self.engine,
            num_input_bytes=self.num_input_bytes,
            max_text_bytes=self.text_bytes,
        )

    def _ranges(self, file: InputFile, index: int, sha256: str) -> Iterator[InputRange]:
        """Yield a file's ranges; a file that is streamed is read only where a range's tokens are not there."""
        if not is_streamed(file):
            yield from iter_ranges(file, index, sha256=sha256, max_row_bytes=self.max_row_bytes)
            return
        name = f"{sha256}-{file.kind}-{self.max_row_bytes}"
        known = [
            InputRange(file_index=index, first_row=row, num_rows=num_rows, sha256=content)
            for row, num_rows, content in self.store.read_ranges(name) or ()
        ]
        if known and all(self.store.token_file(self.tokenization, part).exists() for part in known):
            yield from known
            return
        ranges = []
        for part in iter_ranges(file, index, sha256=sha256, max_row_bytes=self.max_row_bytes):
            ranges.append((part.first_row, part.num_rows, part.sha256))
            yield part
        self.store.write_ranges(name, ranges)
