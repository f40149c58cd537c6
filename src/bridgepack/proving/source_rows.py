"""The only door to the stages of a build: finds sources, derives single rows anew, and builds a whole artifact anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.data import as_sources
from bridgepack.config.recipe import SFTRecipe
from bridgepack.data.build import build_artifact
from bridgepack.data.execution import Progress
from bridgepack.data.inputs import InputFile, find_inputs
from bridgepack.data.reading import InputRange, iter_ranges, read_range
from bridgepack.data.stages import load_stage
from bridgepack.data.tokenizer_loading import load_tokenizer
from bridgepack.errors import DataError, RowError
from bridgepack.records import TRAIN, VALIDATION, Example, Sequence

#: Rows that are tokenised together.
_BATCH_ROWS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSources:
    """The files that a recipe names, as they are now.

    Attributes:
        files: split -> its files, in order; without those of a source that is gone.
        gone: what is not there any more, as messages.
    """

    files: Mapping[str, tuple[InputFile, ...]]
    gone: tuple[str, ...]


@contextmanager
def found_sources(recipe: SFTRecipe) -> Iterator[FoundSources]:
    """Give the files of every split; data sets of the hub are written to a folder that goes afterwards."""
    data = recipe.data
    named = {TRAIN: ("data.train", as_sources(data.train))}
    if data.validation is not None:
        named[VALIDATION] = ("data.validation", as_sources(data.validation))
    gone: list[str] = []
    files: dict[str, tuple[InputFile, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="bridgepack-") as scratch:
        for split, (field, sources) in named.items():
            found: list[InputFile] = []
            for index, source in enumerate(sources):
                try:
                    found += find_inputs((source,), field, split, Path(scratch) / f"{split}-{index}")
                except DataError as error:
                    gone.append(str(error))
            files[split] = tuple(found)
        if data.validation_fraction > 0:
            files[VALIDATION] = files[TRAIN]
        yield FoundSources(files=files, gone=tuple(gone))


def tokenizer_identity(recipe: SFTRecipe) -> dict[str, Any]:
    """Return what rows depend on of the tokenizer that a recipe names, as it is now.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    load_stage.cache_clear()
    return load_tokenizer(recipe.tokenizer).identity()


def derived_rows(
    recipe: SFTRecipe, file: InputFile, file_index: int, rows: set[int]
) -> Iterator[tuple[int, Sequence | RowError]]:
    """Yield some rows of a file as sequences, or why they give none, in row order; those that are not there are not.

    Args:
        recipe: how.
        file: the file.
        file_index: its position in the split's list of inputs.
        rows: their numbers, from 1.

    Raises:
        DataError: the file cannot be read.
        TokenizerError: the tokenizer cannot be loaded.
    """
    tokenization = load_stage(recipe.model_dump_json()).tokenization
    pending: list[tuple[int, Example]] = []
    for row, item in _rows_read(file, file_index, rows):
        if isinstance(item, RowError):
            yield row, item
            continue
        pending.append((row, item))
        if len(pending) == _BATCH_ROWS:
            yield from _encoded(tokenization, pending)
            pending = []
    yield from _encoded(tokenization, pending)


def built_anew(recipe: SFTRecipe, output: Path, *, num_workers: int, progress: Progress) -> Path:
    """Build a recipe's artifact and return its folder.

    Raises:
        BridgepackError: as `build_artifact`.
    """
    return build_artifact(recipe, output=output, num_workers=num_workers, progress=progress).output


def _encoded(tokenization: Any, examples: list[tuple[int, Example]]) -> Iterator[tuple[int, Sequence | RowError]]:
    made = tokenization.sequences([example for _, example in examples])
    yield from zip((row for row, _ in examples), made, strict=True)


def _rows_read(file: InputFile, file_index: int, rows: set[int]) -> Iterator[tuple[int, Example | RowError]]:
    """Yield wanted rows; ranges without one are passed over, and reading ends after the last."""
    wanted = np.array(sorted(rows), dtype=np.int64)
    before: InputRange | None = None
    for part in iter_ranges(file, file_index):
        if before is not None:
            yield from _wanted_of(file, before, wanted, stop=part.first_row)
        if part.first_row > wanted[-1]:
            return
        before = part
    if before is not None:
        yield from _wanted_of(file, before, wanted, stop=int(wanted[-1]) + 1)


def _wanted_of(
    file: InputFile, part: InputRange, wanted: np.ndarray[Any, Any], *, stop: int
) -> Iterator[tuple[int, Example | RowError]]:
    first, last = np.searchsorted(wanted, [part.first_row, stop])
    here = set(wanted[first:last].tolist())
    if not here:
        return
    for row, item in read_range(file, part):
        if row in here and isinstance(item, (Example, RowError)):
            yield row, item
