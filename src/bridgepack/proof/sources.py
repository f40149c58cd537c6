"""The only interface to the build's stages: finds sources, derives single rows again, rebuilds whole artifacts."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.recipe.data import as_sources
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.detection import recorded_readings
from bridgepack.data.layouts.reader import RowReader, readers_of
from bridgepack.data.reading.inputs import InputFile, find_inputs
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_range
from bridgepack.data.sequences.encoding import Encoded, Loss, encode_rows
from bridgepack.data.sequences.loading import forget_stage, load_stage
from bridgepack.data.sequences.over_long import REASONS, SequencePolicy
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.identity import identity_of
from bridgepack.data.templates.variables import refuse_unread_variables
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import ConfigError, DataError, RowError, TokenizerError
from bridgepack.proof.packs import drawn_of_each
from bridgepack.records import TRAIN, VALIDATION, DropReason, Manifest, MaskArray, Sequence, TokenArray
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import token_counts

#: Rows that are tokenised together.
_BATCH_ROWS = 64
#: One token to read, one to predict.
_FEWEST_TOKENS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSources:
    """The files of a recipe, as they are now."""

    files: Mapping[str, tuple[InputFile, ...]]  #: split -> its files, in order; without those of missing sources
    gone: tuple[str, ...]  #: messages about missing sources


@contextmanager
def found_sources(recipe: SFTRecipe, manifest: Manifest | None = None) -> Iterator[FoundSources]:
    """Yield the files of every split; writes data sets of the hub to a folder that is removed afterwards.

    The layouts that an artifact's build detected are in its `manifest`; without it they are detected again.

    Raises:
        ConfigError: no layout fits the rows of a source, or several do.
    """
    readings_of = {} if manifest is None else recorded_readings(recipe, manifest)
    data = recipe.data
    sources_of = {TRAIN: ("data.train", as_sources(data.train))}
    if data.validation is not None:
        sources_of[VALIDATION] = ("data.validation", as_sources(data.validation))
    problems: list[str] = []
    files: dict[str, tuple[InputFile, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="bridgepack-") as scratch:
        for split, (field, sources) in sources_of.items():
            split_files: list[InputFile] = []
            for index, source in enumerate(sources):
                try:
                    place = Path(scratch) / f"{split}-{index}"
                    readings = readings_of.get(split, ())
                    reading = readings[index] if len(readings) == len(sources) else None
                    view_of = (
                        readers_of(recipe) if reading is None else _always(RowReader(reading, recipe.data.role_aliases))
                    )
                    files_of_source = find_inputs((source,), field, split, place, view_of)
                    split_files += (replace(file, source=index) for file in files_of_source)
                except DataError as error:
                    problems.append(str(error))
            files[split] = tuple(split_files)
        if data.validation_fraction > 0:
            files[VALIDATION] = files[TRAIN]
        yield FoundSources(files=files, gone=tuple(problems))


def input_files(
    recipe: SFTRecipe, files: Mapping[str, tuple[InputFile, ...]], split: str | None
) -> list[tuple[str, InputFile]]:
    """Return (split, file) of each file of a split, or of both; raises ConfigError if the split has no files."""
    names = [TRAIN, *([VALIDATION] if recipe.data.validation is not None else [])]
    if split is not None and split not in names:
        hint = "its rows are among those of training" if recipe.data.validation_fraction else "it is not set"
        raise ConfigError(f"--split is {split!r}; data.validation has no files: {hint}. Omit --split.")
    return [(name, file) for name in names if split in (None, name) for file in files[name]]


def choose_rows(
    inputs: ListOf[tuple[str, InputFile]], num_rows: int | None, seed: int, max_row_bytes: int
) -> tuple[list[set[int] | None], int]:
    """Return the rows to read of each file, from 1 (None for all), and the number of all rows; 0 if all are read."""
    if num_rows is None:
        return [None] * len(inputs), 0
    ranges = (iter_ranges(file, sha256="", max_row_bytes=max_row_bytes) for _, file in inputs)
    sizes = [sum(part.num_rows for part in parts) for parts in ranges]
    indices_of_files = drawn_of_each(sizes, num_rows, seed)
    return [{index + 1 for index in indices} for indices in indices_of_files], sum(sizes)


def _always(reader: RowReader) -> Callable[..., RowReader]:
    return lambda *_: reader


def tokenizer_identity(recipe: SFTRecipe) -> dict[str, Any]:
    """Return the identity of a recipe's tokenizer as it is now: everything in it that rows depend on.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    forget_stage()
    tokenizer = load_tokenizer(recipe.tokenizer)
    facts = None
    with suppress(TokenizerError):  # another template may not do what the recipe asks: it is named as another
        facts = TemplateFacts.of_recipe(recipe, tokenizer)
    return identity_of(recipe, tokenizer, facts)


#: (row number, from 1; one of its sequences or why it or there is none; content that its text lacks)
GivenRow = tuple[int, Sequence | RowError, tuple[Loss, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRows:
    """Derives the rows of a split from its input files."""

    recipe: SFTRecipe
    names: tuple[str, ...]  #: names of the inputs in the manifest
    files: tuple[InputFile | None, ...]  #: the inputs as they are now; None for a missing one

    def rows(self, file_index: int, rows: set[int]) -> Iterator[GivenRow]:
        """Yield some rows of an input, in order; skips rows that do not exist.

        Raises:
            DataError: the input is missing or cannot be read.
            TokenizerError: the tokenizer cannot be loaded.
        """
        file = self.files[file_index]
        if file is None:
            raise DataError(f"{self.names[file_index]} is gone")
        eos_token_id = load_stage(self.recipe.model_dump_json()).tokenizer.eos_token_id
        policy = SequencePolicy.of(self.recipe.resolve(), eos_token_id, file.kind_of_rows)
        before, first_token = 0, 0
        for row, _, outcome in encoded_rows(self.recipe, file, rows):
            first_token = first_token if row == before else 0
            before = row
            if isinstance(outcome, RowError):
                yield row, outcome, ()
                continue
            ids, mask = np.array(outcome.ids, dtype=np.int32), np.array(outcome.mask, dtype=np.int8)
            for item in finished_sequences(policy, ids, mask, outcome.num_context):
                finished_item = item
                if isinstance(item, Sequence):
                    finished_item = replace(item, first_token=item.first_token + first_token)
                yield row, finished_item, outcome.losses
            first_token += len(ids)

    def label(self, file_index: int) -> str:
        """Return the input's present name."""
        file = self.files[file_index]
        return self.names[file_index] if file is None else file.label


#: (row number, from 1; its columns, or why they cannot be read)
NumberedRow = tuple[int, ReadRow | RowError]
#: (row number, from 1; its columns, empty if unreadable; its ids and mask, uncut, or why there are
#: none)
EncodedRow = tuple[int, ReadRow, Encoded | RowError]
_UNREADABLE = ReadRow({})


def encoded_rows(recipe: SFTRecipe, file: InputFile, rows: set[int] | None = None) -> Iterator[EncodedRow]:
    """Yield rows of a file with their tokens from the build's tokenisation, in row order; skips blank lines.

    A row whose conversation is split is yielded once for each of its sequences, in order. `rows` are row numbers, from
    1; by default all.

    Raises:
        DataError: the file cannot be read.
        TokenizerError: the tokenizer cannot be loaded, or cannot do what the recipe asks.
    """
    encoder = load_stage(recipe.model_dump_json()).encoder
    for batch in row_batches(recipe, file, rows):
        outcomes = iter(encode_rows(encoder, [item for _, item in batch if isinstance(item, ReadRow)]))
        for row, item in batch:
            if not isinstance(item, ReadRow):
                yield row, _UNREADABLE, item
                continue
            sequences = next(outcomes)
            for sequence in [sequences] if isinstance(sequences, RowError) else sequences:
                yield row, item, sequence


def row_batches(recipe: SFTRecipe, file: InputFile, rows: set[int] | None = None) -> Iterator[tuple[NumberedRow, ...]]:
    """Yield rows of a file as layouts read them, in batches and in row order; arguments as of `encoded_rows`.

    Raises:
        DataError: the file cannot be read.
    """
    yield from batched(rows_of_file(file, rows, recipe.data.max_row_bytes), _BATCH_ROWS)


def stage_tokenizer(recipe: SFTRecipe, *, is_built: bool) -> ChatTokenizer:
    """Return a recipe's tokenizer as the build uses it, read again.

    `is_built` accepts variables that the chat template does not read, as an earlier build did.

    Raises:
        ConfigError: the chat template does not read a variable of the recipe.
        TokenizerError: it cannot be loaded, or cannot do what the recipe asks.
    """
    forget_stage()
    tokenizer = load_stage(recipe.model_dump_json()).tokenizer
    if not is_built:
        refuse_unread_variables(recipe, tokenizer)
    return tokenizer


def finished_sequences(
    policy: SequencePolicy, ids: TokenArray, mask: MaskArray, num_context: int
) -> list[Sequence] | list[RowError]:
    """Return an uncut sequence after applying the recipe's sizes: one, its pieces, or why there is none."""
    if len(ids) < _FEWEST_TOKENS:
        detail = f"{len(ids)} tokens; next-token loss needs at least {_FEWEST_TOKENS}"
        return [RowError(DropReason.TOO_SHORT, detail)]
    _, num_learned = token_counts(ids, mask, np.array([0, len(ids)]), policy.eos_token_id)
    judgement = policy.judge(np.array([len(ids)]), num_learned)
    code = int(judgement.codes[0])
    if code:
        return [RowError(DropReason(REASONS[code]), policy.detail(code, len(ids)))]
    if not judgement.needs_cut[0]:
        return [Sequence(input_ids=ids, loss_mask=policy.mask_of_row(ids, mask))]
    cut = policy.cut(ids, mask, num_context)
    if isinstance(cut, RowError):
        return [cut]
    return [
        Sequence(
            input_ids=ids,
            loss_mask=policy.mask_of_row(ids, mask),
            is_truncated=not policy.splits,
            first_token=first_token,
        )
        for ids, mask, first_token in cut
    ]


def rows_of_file(file: InputFile, rows: set[int] | None, max_row_bytes: int) -> Iterator[tuple[int, Any]]:
    """Yield rows of a file by their numbers, in order, without blank lines; all by default.

    Raises:
        DataError: the file cannot be read.
    """
    last = max(rows, default=0) if rows is not None else None
    for part in iter_ranges(file, sha256="", max_row_bytes=max_row_bytes):
        if last is not None and part.first_row > last:
            return
        if rows is None or not rows.isdisjoint(range(part.first_row, part.first_row + part.num_rows)):
            for row, item in read_range(file, part):
                if item is not None and (rows is None or row in rows):
                    yield row, item
