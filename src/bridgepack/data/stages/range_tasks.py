"""What a worker does with an input range: tokenise it, or find its tokens in the store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bridgepack.data.files import make_folders
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import InputRange, is_streamed
from bridgepack.data.reading.rows import read_range, rows_apart
from bridgepack.data.stages.finish import FinishedRange, FinishSettings, RangePlace, finish_range
from bridgepack.data.store.token_file import TokenFileWriter, check_token_file, read_token_index, write_token_file
from bridgepack.data.tasks import Beat, is_meant_for_users
from bridgepack.errors import StoreError
from bridgepack.records import DropReason
from bridgepack.records.token_batches import TokenBatch, token_counts

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Rows of a range that may raise what nobody expects; where there are more, the rows are not what is wrong.
_MAX_FAILED_ROWS = 50
#: Reasons of drops that another machine, or this one with more memory, may not give.
_DEPENDS_ON_MACHINE = frozenset({DropReason.OUT_OF_MEMORY, DropReason.TIME_OUT})


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizeTask:
    """One input range whose tokens are wanted.

    Attributes:
        recipe_json: the recipe.
        file: the input file; None where the tokens must be in the store.
        part: the range; without its rows where the file is streamed and its tokens were seen in the store.
        token_file: where the tokens are, or go.
        place: where the rows come from.
        settings: what happens after tokenising.
        engine: what encodes texts.
        num_input_bytes: of all inputs; a fast engine pays for its start only where there is much.
        max_text_bytes: text of the rows that are tokenised together.
        one_by_one: tokenise each row alone, with a beat before it; what it raises drops the row.
        skips: rows that are not touched, by their 0-based position in the range -> (reason, detail) of the drop.
        only: touch no row but this one, and write nothing.
    """

    recipe_json: str
    file: InputFile | None
    part: InputRange
    token_file: Path
    place: RangePlace
    settings: FinishSettings
    engine: str = "tokenizers"
    num_input_bytes: int = 0
    max_text_bytes: int = 1 << 22
    one_by_one: bool = False
    skips: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    only: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """What became of a range.

    Attributes:
        place: where its rows come from.
        token_file: its tokens.
        was_tokenized: now; otherwise they were in the store.
        finished: what became of its rows; None where the tokens are not there and cannot be made from the task.
        num_bytes: its share of the file's size; 0 where that is not known.
    """

    place: RangePlace
    token_file: Path
    was_tokenized: bool
    finished: FinishedRange | None
    num_bytes: int = 0


def tokenize_range(task: TokenizeTask, beat: Beat) -> RangeResult:
    """Make sure that a range's tokens are in the store and return what becomes of its rows.

    Raises:
        DataError: for a bad row, when the recipe says `on_bad_row: error`, or an over-long one with `over_long: error`;
            or when the input cannot be read.
    """
    is_there = _is_in_store(task)
    finished = None
    if is_there or _tokenize(task, beat):
        finished = finish_range(task.settings, task.place, task.token_file)
    return RangeResult(
        place=task.place,
        token_file=task.token_file,
        was_tokenized=not is_there,
        finished=finished,
        num_bytes=task.part.num_bytes,
    )


def try_row(task: TokenizeTask, beat: Beat) -> None:
    """Tokenise the one row that a task names, and keep nothing."""
    assert task.file is not None
    stage = _stage(task)
    first_row = task.part.first_row
    for offset, rows in enumerate(rows_apart(task.file, task.part)):
        if offset == task.only:
            beat(offset)
            list(stage.batches(rows, first_row=first_row, max_text_bytes=task.max_text_bytes))


def _is_in_store(task: TokenizeTask) -> bool:
    """Say whether a range's tokens are there and whole.

    A file that is broken, or lacks rows for which memory or time did not suffice, goes.
    """
    try:
        check_token_file(task.token_file)
    except StoreError:
        if task.file is None:
            raise
        task.token_file.unlink(missing_ok=True)
        return False
    reasons = {reason for reason, _ in read_token_index(task.token_file).kinds}
    if task.file is not None and reasons & _DEPENDS_ON_MACHINE:
        task.token_file.unlink()
        return False
    os.utime(task.token_file)
    return True


def _tokenize(task: TokenizeTask, beat: Beat) -> bool:
    """Write a range's token file; False where the task does not have its rows."""
    part = task.part
    if task.file is None or (is_streamed(task.file) and part.payload is None and not part.is_oversized):
        return False
    make_folders(task.token_file.parent)
    with write_token_file(task.token_file) as writer:
        (_tokenize_one_by_one if task.one_by_one else _tokenize_together)(task, writer, beat)
        beat(-1)
    return True


def _tokenize_together(task: TokenizeTask, writer: TokenFileWriter, beat: Beat) -> None:
    assert task.file is not None
    stage = _stage(task)
    num_rows = 0
    beat(0)
    rows = read_range(task.file, task.part)
    for batch in stage.batches(rows, first_row=task.part.first_row, max_text_bytes=task.max_text_bytes):
        _add(writer, batch, stage)
        num_rows += batch.num_rows + batch.num_blank_lines
        beat(num_rows)


def _tokenize_one_by_one(task: TokenizeTask, writer: TokenFileWriter, beat: Beat) -> None:
    assert task.file is not None
    stage = _stage(task)
    first_row, num_failed = task.part.first_row, 0
    for offset, rows in enumerate(rows_apart(task.file, task.part)):
        beat(offset)
        if offset in task.skips:
            _add_drop(writer, offset, *task.skips[offset])
            continue
        try:
            batches = list(stage.batches(rows, first_row=first_row, max_text_bytes=task.max_text_bytes))
        except BaseException as error:  # whatever one row brings about is the row's end, not the build's
            num_failed += 1
            if is_meant_for_users(error) or num_failed > _MAX_FAILED_ROWS:
                raise
            reason = DropReason.OUT_OF_MEMORY if isinstance(error, MemoryError) else DropReason.TOKENIZER_FAILED
            _add_drop(writer, offset, reason, f"{type(error).__name__}: {error}"[:500])
            continue
        for batch in batches:
            _add(writer, batch, stage)


def _stage(task: TokenizeTask) -> LoadedStage:
    from bridgepack.data.sequences.loading import load_stage  # templates and tokenizers, which only workers need

    return load_stage(task.recipe_json, task.engine, task.num_input_bytes)


def _add_drop(writer: TokenFileWriter, offset: int, reason: str, detail: str) -> None:
    writer.add_drops([(offset, reason, detail)])
    writer.add_rows(1, 0)


def _add(writer: TokenFileWriter, batch: TokenBatch, stage: LoadedStage) -> None:
    eos_token_id = stage.tokenizer.eos_token_id
    trained, learned = token_counts(batch.input_ids, batch.loss_mask, batch.offsets, eos_token_id)
    writer.add_sequences(
        batch.input_ids,
        batch.loss_mask,
        stored_lengths=batch.offsets[1:] - batch.offsets[:-1],
        row_offsets=batch.row_offsets,
        num_trained=trained,
        num_learned=learned,
        num_context=batch.num_context,
    )
    writer.add_drops(batch.drops)
    writer.add_rows(batch.num_rows, batch.num_blank_lines)
