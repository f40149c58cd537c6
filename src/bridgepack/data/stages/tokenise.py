"""Tokenises all ranges of a split's files into the store; a worker's task is one range."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bridgepack.data.files import make_folders
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import InputRange, iter_ranges
from bridgepack.data.reading.rows import read_range, rows_apart
from bridgepack.data.stages.finish import FinishSettings, RangePlace, RangeResult, finish_range
from bridgepack.data.stages.retokenise import EarlierTokens, Source, tokenized_from
from bridgepack.data.store.store import TokenStore, check_stored_tokens, token_origin
from bridgepack.data.store.token_file import TokenFileWriter, TokenOrigin, read_token_index, write_token_file
from bridgepack.data.tasks import Beat, Runner, TaskFailure, is_meant_for_users
from bridgepack.errors import DataError, StoreError
from bridgepack.records import DropReason, ServedRecord
from bridgepack.records.sequences import RowNote

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage
    from bridgepack.data.tokenizers.engines import EngineReport

#: Maximum rows of a range that may raise unexpected errors; if there are more, the rows are not the cause.
_MAX_FAILED_ROWS = 50
#: Drop reasons that may not occur on another machine or with more memory.
_DEPENDS_ON_MACHINE = frozenset({DropReason.OUT_OF_MEMORY, DropReason.TIME_OUT})
#: Maximum rows of one range that may crash their process; if there are more, the rows are not the cause.
_MAX_DEADLY_ROWS = 50
#: Times that a worker may die although each row alone works, e.g. because another process kills it.
_MAX_UNEXPLAINED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokenization:
    """How rows become tokens; the same for all ranges of a build."""

    key: str  #: name of the tokenisation in the store
    recipe_json: str  #: the recipe
    engine: str  #: engine that encodes texts
    num_input_bytes: int  #: size of all inputs; a fast engine's start pays off only for large inputs
    max_text_bytes: int  #: maximum text per batch of rows

    def stage(self) -> LoadedStage:
        """Return the loaded stage; loaded once per process."""
        from bridgepack.data.sequences.loading import load_stage  # templates and tokenizers: only for workers

        return load_stage(self.recipe_json, self.engine, self.num_input_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizeTask:
    """One input range to tokenise."""

    how: Tokenization  #: how rows become tokens
    file: InputFile  #: the input file
    part: InputRange  #: the range
    place: RangePlace  #: origin of the rows, and the token file
    settings: FinishSettings  #: what happens after tokenising
    one_by_one: bool = False  #: tokenise each row alone, after a heartbeat; any exception drops the row
    #: 0-based position in the range -> drop, for rows to skip
    skips: Mapping[int, RowNote] = field(default_factory=dict)
    earlier: EarlierTokens | None = None  #: the range's tokens for another maximum length, if there are any


def tokenize_range(task: TokenizeTask, beat: Beat) -> RangeResult:
    """Return the result of a range, after tokenising it unless its tokens are in the store.

    Raises:
        DataError: a row is bad and the recipe says `on_bad_row: error`, or over-long with `over_long: error`; or the
            input cannot be read.
    """
    is_there, num_copied = _is_in_store(task), 0
    if not is_there:
        make_folders(task.place.token_file.parent)
        with write_token_file(task.place.token_file, _origin(task)) as writer:
            if task.one_by_one:
                _tokenize_one_by_one(task, writer, beat)
            else:
                num_copied = _tokenize_together(task, writer, beat)
            beat(-1)
    result = finish_range(task.settings, task.place)
    return replace(result, was_tokenized=not is_there, num_bytes=task.part.num_bytes, num_rows_copied=num_copied)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleTask:
    """A sample of answers to compare with what a server sends."""

    how: Tokenization  #: how rows become tokens
    files: tuple[InputFile, ...]  #: training files


def tokenize_or_sample(task: TokenizeTask | SampleTask, beat: Beat) -> RangeResult | ServedRecord:
    """Return the result of a range, as `tokenize_range`, or that of the sample."""
    if isinstance(task, TokenizeTask):
        return tokenize_range(task, beat)
    from bridgepack.data.served.sample import sample_answers

    beat(-1)
    return sample_answers(task.how.stage(), task.files)


def finish_stored(task: tuple[FinishSettings, RangePlace], _: Beat) -> RangeResult:
    """Return the result of a range whose tokens must be in the store.

    Raises:
        DataError: see `tokenize_range`.
        StoreError: the tokens are missing, incomplete or another range's.
    """
    settings, place = task
    check_stored_tokens(place.token_file)
    os.utime(place.token_file)
    return finish_range(settings, place)


def try_row(task: tuple[TokenizeTask, int], beat: Beat) -> None:
    """Tokenise one row of a range, by its 0-based position, and discard the result."""
    range_task, position = task
    stage = range_task.how.stage()
    for offset, rows in enumerate(rows_apart(range_task.file, range_task.part)):
        if offset == position:
            beat(offset)
            list(stage.batches(rows, first_row=range_task.part.first_row, max_text_bytes=range_task.how.max_text_bytes))


def _is_in_store(task: TokenizeTask) -> bool:
    """Return whether the store has a range's complete tokens.

    Removes a file that is broken, another range's, or lacks rows that ran out of memory or time.

    Raises:
        StoreError: a folder stands in its place, which is left as it is.
    """
    path = task.place.token_file
    try:
        is_sound = check_stored_tokens(path) == _origin(task)
        is_sound &= not _DEPENDS_ON_MACHINE & {reason for reason, _ in read_token_index(path).kinds}
    except StoreError:
        if path.is_dir():
            raise
        is_sound = False
    if is_sound:
        os.utime(path)
    else:
        path.unlink(missing_ok=True)
    return is_sound


def _origin(task: TokenizeTask) -> TokenOrigin:
    return token_origin(task.how.key, task.part, task.file.view)


def _tokenize_together(task: TokenizeTask, writer: TokenFileWriter, beat: Beat) -> int:
    """Write the tokens of a range and return how many of its rows were copied from earlier tokens."""
    stage, max_text_bytes = task.how.stage(), task.how.max_text_bytes
    num_rows = 0
    beat(0)
    if task.earlier is not None:
        source = Source(task.file, task.part)
        num_copied = tokenized_from(task.earlier, source, stage, writer, max_text_bytes=max_text_bytes, beat=beat)
        if num_copied is not None:
            return num_copied
    rows = read_range(task.file, task.part)
    for batch in stage.batches(rows, first_row=task.part.first_row, max_text_bytes=max_text_bytes):
        writer.add(batch, stage.tokenizer.eos_token_id)
        num_rows += batch.num_rows + batch.num_blank_lines
        beat(num_rows)
    return 0


def _tokenize_one_by_one(task: TokenizeTask, writer: TokenFileWriter, beat: Beat) -> None:
    stage = task.how.stage()
    first_row, num_failed = task.part.first_row, 0
    for offset, rows in enumerate(rows_apart(task.file, task.part)):
        beat(offset)
        if offset in task.skips:
            writer.add_dropped_row(task.skips[offset])
            continue
        try:
            batches = list(stage.batches(rows, first_row=first_row, max_text_bytes=task.how.max_text_bytes))
        except BaseException as error:  # any failure of one row drops that row, not the build
            num_failed += 1
            if is_meant_for_users(error) or num_failed > _MAX_FAILED_ROWS:
                raise
            reason = DropReason.OUT_OF_MEMORY if isinstance(error, MemoryError) else DropReason.TOKENIZER_FAILED
            writer.add_dropped_row(RowNote(offset, reason, f"{type(error).__name__}: {error}"[:500]))
            continue
        for batch in batches:
            writer.add(batch, stage.tokenizer.eos_token_id)


def tokenized_ranges(
    runner: Runner,
    files: Iterable[tuple[InputFile, str]],
    how: Tokenization,
    settings: FinishSettings,
    store: TokenStore,
    *,
    max_row_bytes: int,
    sample: SampleTask | None = None,
    earlier: Mapping[tuple[int, int], EarlierTokens] = MappingProxyType({}),
) -> Iterator[RangeResult | ServedRecord | TaskFailure]:
    """Yield the results of all ranges of a split's files, in order; `files` are (file, its sha256).

    With a `sample`, its result comes first, or its failure if it fails with all the memory, too. `earlier` has tokens
    for another maximum length, by the index of their file and the number of their first row.

    Raises:
        DataError: a file cannot be read, or a row stops the build.
        StoreError, OSError: the store cannot be written.
    """
    tasks = (
        TokenizeTask(
            how=how,
            file=file,
            part=part,
            place=RangePlace(
                file_index=index,
                label=file.label,
                first_row=part.first_row,
                token_file=store.token_file(how.key, part, file.view),
                kind=file.kind_of_rows,
            ),
            settings=settings,
            earlier=earlier.get((index, part.first_row)),
        )
        for index, (file, sha256) in enumerate(files)
        for part in iter_ranges(file, sha256=sha256, max_row_bytes=max_row_bytes)
    )
    samples = [] if sample is None else [sample]
    for number, outcome in enumerate(runner.run(tokenize_or_sample, chain[TokenizeTask | SampleTask](samples, tasks))):
        if not isinstance(outcome, TaskFailure):
            yield outcome
        elif number < len(samples):
            yield runner.run_alone(tokenize_or_sample, samples[number])
        else:
            yield rescued_range(runner, outcome)


def rescued_range(runner: Runner, failure: TaskFailure) -> RangeResult:
    """Return the result of a range whose task failed, tokenised row by row, without the rows that fail alone.

    Raises:
        DataError: the rows are not the cause, or too many of them fail.
        RuntimeError: code other than a row's tokenisation raised.
    """
    task: TokenizeTask = failure.task
    skips: dict[int, RowNote] = {}
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
            skips[row] = RowNote(row, _reason(again), f"tokenising it: {again.detail}")
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
        "row alone works; usually memory ran out. Finished work is kept; use fewer --num-workers and run the same "
        "command again."
    )


def _reason(failure: TaskFailure) -> DropReason:
    if failure.kind == "stalled":
        return DropReason.TIME_OUT
    return DropReason.OUT_OF_MEMORY if failure.is_memory else DropReason.TOKENIZER_FAILED


def tokenizer_identity(recipe_json: str) -> dict[str, Any]:
    """Return the identity of a recipe's tokenizer, after loading it; raises TokenizerError if it cannot be loaded."""
    from bridgepack.data.sequences.loading import load_identity

    return load_identity(recipe_json)


def checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    """Return which engine encodes texts, after comparing it with `tokenizers` on rows of all inputs."""
    from bridgepack.data.reading.rows import sampled_rows
    from bridgepack.data.sequences.loading import load_stage

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def stage_identity(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    """Return the tokenizer's identity, after loading the tokenisation stage with an engine."""
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).identity()
