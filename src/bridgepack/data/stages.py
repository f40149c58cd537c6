"""What a worker does: tokenise one input range into a store file, or write one shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from bridgepack.config.recipe import SFTRecipe
from bridgepack.data.assembly import ShardPlan, assemble_rows
from bridgepack.data.inputs import InputFile, hash_file
from bridgepack.data.packing import seeded_hash
from bridgepack.data.reading import BlankLine, InputRange, read_range
from bridgepack.data.shards import rows_per_group, write_shard
from bridgepack.data.token_store import StoredSequence, TokenStore, write_store_file
from bridgepack.data.tokenization import Tokenization
from bridgepack.data.tokenizer import ChatTokenizer
from bridgepack.data.tokenizer_loading import load_tokenizer
from bridgepack.errors import DataError, RowError
from bridgepack.records import Drop, DropReason, Example, ShardRecord

#: Examples rendered and encoded together.
_BATCH_EXAMPLES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizeTask:
    """One input range to be tokenised.

    Attributes:
        recipe_json: the recipe.
        file: the input file.
        part: the range.
        store_path: file to write.
    """

    recipe_json: str
    file: InputFile
    part: InputRange
    store_path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """What became of a range's rows; each pair counts training first, then validation.

    Attributes:
        file_index: position of its file in the list of inputs.
        store_path: file with its sequences.
        num_rows: rows read.
        num_blank_lines: lines without anything on them.
        drops: (set aside for validation, what was dropped).
        num_bytes: its share of the file's size; 0 where that is not known.
    """

    file_index: int
    store_path: Path
    num_rows: tuple[int, int]
    num_blank_lines: int
    drops: tuple[tuple[bool, Drop], ...]
    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteTask:
    """One shard to be written.

    Attributes:
        plan: what goes into it.
        store_paths: all store files, in order.
    """

    plan: ShardPlan
    store_paths: tuple[Path, ...]


def tokenize_range(task: TokenizeTask) -> RangeResult:
    """Tokenise a range's rows into a store file and return what became of them.

    Raises:
        DataError: for a bad row, when the recipe says `on_bad_row: error`, or an over-long one with `over_long: error`.
    """
    work = _RangeWork(task)
    write_store_file(task.store_path, work.sequences())
    return RangeResult(
        file_index=task.part.file_index,
        store_path=task.store_path,
        num_rows=(work.num_rows - work.num_validation_rows, work.num_validation_rows),
        num_blank_lines=work.num_blank_lines,
        drops=tuple(work.drops),
        num_bytes=task.part.num_bytes,
    )


def write_planned_shard(task: WriteTask) -> ShardRecord:
    """Assemble and write one shard and return its record."""
    plan = task.plan
    group_rows = rows_per_group(plan.packed_sequence_size)
    rows = assemble_rows(plan, TokenStore(task.store_paths), rows_per_group=group_rows)
    num_rows = write_shard(plan.path, rows, packed_sequence_size=plan.packed_sequence_size)
    return ShardRecord(
        path=plan.name, num_rows=num_rows, num_bytes=plan.path.stat().st_size, sha256=hash_file(plan.path)
    )


def is_set_aside(file_index: int, row: int, *, fraction: float, seed: int) -> bool:
    """Say whether a training row goes to validation: by a hash of its origin, the same on every machine."""
    if fraction <= 0:
        return False
    key = np.array([(file_index << 44) + row], dtype=np.uint64)
    return int(seeded_hash(key, seed)[0]) < int(fraction * 2**64)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStage:
    """The tokenisation stage of a recipe, ready to work.

    Attributes:
        recipe: the recipe.
        tokenizer: its tokenizer.
        tokenization: its stage.
    """

    recipe: SFTRecipe
    tokenizer: ChatTokenizer
    tokenization: Tokenization


@lru_cache(maxsize=1)
def load_stage(recipe_json: str) -> LoadedStage:
    """Return the stage of a recipe; loaded once per process.

    Raises:
        TokenizerError: when the tokenizer cannot be loaded or cannot do what the recipe asks.
    """
    recipe = SFTRecipe.model_validate_json(recipe_json)
    tokenizer = load_tokenizer(recipe.tokenizer)
    return LoadedStage(recipe=recipe, tokenizer=tokenizer, tokenization=Tokenization(recipe.resolve(), tokenizer))


class _RangeWork:
    """Goes through the rows of a range once and counts what happens to them."""

    def __init__(self, task: TokenizeTask) -> None:
        self._task = task
        stage = load_stage(task.recipe_json)
        self._recipe, self._tokenization = stage.recipe, stage.tokenization
        self.num_rows = 0
        self.num_validation_rows = 0
        self.num_blank_lines = 0
        self.drops: list[tuple[bool, Drop]] = []

    def sequences(self) -> Iterator[StoredSequence]:
        """Yield the range's sequences in row order."""
        pending: list[tuple[int, Example | RowError]] = []
        for row, item in read_range(self._task.file, self._task.part):
            if isinstance(item, BlankLine):
                self.num_blank_lines += 1
                continue
            self.num_rows += 1
            pending.append((row, item))
            if len(pending) == _BATCH_EXAMPLES:
                yield from self._encoded(pending)
                pending = []
        yield from self._encoded(pending)

    def _encoded(self, rows: Sequence[tuple[int, Example | RowError]]) -> Iterator[StoredSequence]:
        made = iter(self._tokenization.sequences([item for _, item in rows if isinstance(item, Example)]))
        for row, item in rows:
            is_validation = self._is_validation(row)
            self.num_validation_rows += is_validation
            result = next(made) if isinstance(item, Example) else item
            if isinstance(result, RowError):
                self._drop(row, result, is_validation)
            else:
                yield StoredSequence(
                    sequence=result, file_index=self._task.part.file_index, row=row, is_validation=is_validation
                )

    def _is_validation(self, row: int) -> bool:
        fraction, seed = self._recipe.data.validation_fraction, self._recipe.packing.seed
        return is_set_aside(self._task.part.file_index, row, fraction=fraction, seed=seed)

    def _drop(self, row: int, error: RowError, is_validation: bool) -> None:
        if error.reason == DropReason.OVER_LONG and self._recipe.preprocessing.over_long == "error":
            raise DataError(
                f"{self._task.file.label} row {row}: {error.reason}: {error.detail}. Raise packing.max_sequence_length "
                "and packed_sequence_size, or set preprocessing.over_long to drop or truncate."
            )
        if self._recipe.data.on_bad_row == "error":
            raise DataError(
                f"{self._task.file.label} row {row}: {error.reason}: {error.detail}. Correct the row, or set "
                "data.on_bad_row to drop."
            )
        drop = Drop(
            file_index=self._task.part.file_index, row=row, reason=DropReason(error.reason), detail=error.detail
        )
        self.drops.append((is_validation, drop))
