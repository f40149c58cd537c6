"""Compares a sample of a build's answers with what a server sends; the sample depends on the files alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched, islice, zip_longest
from typing import TYPE_CHECKING

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.rows import pick_evenly, read_range
from bridgepack.data.reading.sampling import Window, file_windows
from bridgepack.data.served.choices import ChoiceRows
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.masked_prompts import PromptRows
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.switches import SwitchRows, find_switches
from bridgepack.data.served.tally import ServedTally
from bridgepack.errors import DataError, RowError
from bridgepack.records import ServedRecord
from bridgepack.records.rows import ReadRow

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Answers that are compared, at most about.
MAX_ANSWERS = 500
#: Characters rendered, after which no further row is compared, and at most of one row: some tenths of a second.
_BUDGET, _MAX_OF_ROW = 16_000_000, 64_000_000
#: Files that are read, and windows and rows of all of them.
_MAX_FILES, _NUM_WINDOWS, _NUM_ROWS = 8, 16, 512
#: Rows that are encoded together: more save little, and each may be large.
_ENCODED_TOGETHER = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledRow:
    """A row of the sample, as layouts read it."""

    file_index: int
    row: int  #: from 1
    is_row_exact: bool  #: the number is known, not estimated
    values: ReadRow


def sample_answers(stage: "LoadedStage", files: Sequence[InputFile]) -> ServedRecord:
    """Return the comparison of a sample of a split's answers.

    Raises:
        ConfigError: the recipe's rows are no conversations.
    """
    rows, tally = ServedRows.of(stage, shows_texts=False), ServedTally()
    switch_rows, prompts, choices = SwitchRows(), PromptRows(), ChoiceRows()
    for item, answers in _compare(rows, iter_sample(files, max_row_bytes=stage.recipe.data.max_row_bytes)):
        if isinstance(answers, RowError) or not answers:
            continue
        tally.add(item.file_index, item.row, answers, is_row_exact=item.is_row_exact)
        switch_rows.add(item.values, answers)
        prompts.add(item.values, answers)
        choices.add(item.values, len(answers))
        if tally.num_answers >= MAX_ANSWERS or rows.comparer.num_rendered >= _BUDGET:
            break
    switches = find_switches(rows, switch_rows)
    record = tally.record(switches, prompts.try_setting(stage), rows.settings)
    return replace(record, choices=choices.measure(stage, switches)) if record.differing else record


def _compare(
    rows: ServedRows, sample: Iterable[SampledRow]
) -> Iterator[tuple[SampledRow, list[ServedAnswer] | RowError]]:
    """Yield each row with its answers; some are encoded together."""
    for items in batched(sample, _ENCODED_TOGETHER):
        values = [item.values for item in items]
        yield from zip(items, rows.iter_answers(values, most_characters=_MAX_OF_ROW), strict=True)


def iter_sample(files: Sequence[InputFile], *, max_row_bytes: int) -> Iterator[SampledRow]:
    """Yield rows of windows that are spread over some files, window by window; skips what cannot be read."""
    indices = pick_evenly(range(len(files)), _MAX_FILES)
    num_windows = max(_NUM_WINDOWS // max(len(indices), 1), 1)
    windows = [(index, window) for index in indices for window in _windows(files[index], num_windows, max_row_bytes)]
    num_rows = -(-_NUM_ROWS // max(len(windows), 1))
    in_turn = zip_longest(*(_rows(index, files[index], window, num_rows) for index, window in windows))
    yield from (row for group in in_turn for row in group if row is not None)


def _windows(file: InputFile, num_windows: int, max_row_bytes: int) -> list[Window]:
    """Return windows of a file; none if it cannot be read, which the build then reports."""
    try:
        windows = list(islice(file_windows(file, max_row_bytes=max_row_bytes).windows, num_windows))
    except DataError:
        return []
    return [window for window in windows if not window.part.is_oversized]


def _rows(index: int, file: InputFile, window: Window, num_rows: int) -> Iterator[SampledRow]:
    """Yield the first rows of a window; ends where they cannot be read."""
    try:
        for row, item in islice(read_range(file, window.part), num_rows):
            if isinstance(item, ReadRow):
                yield SampledRow(file_index=index, row=row, is_row_exact=window.has_row_numbers, values=item)
    except DataError:
        return
