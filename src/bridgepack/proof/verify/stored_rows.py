"""Derives rows or a whole artifact from the token store, without sources or tokenizer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.identity import store_key
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.store.store import (
    IDENTITY_FILE,
    BuildRecord,
    RangeRecord,
    TokenStore,
    default_store,
    existing_store,
    find_build_record,
    iter_build_records,
)
from bridgepack.data.store.token_file import check_token_file, read_token_index, token_arrays
from bridgepack.data.tasks import Progress
from bridgepack.errors import RowError, StoreError
from bridgepack.proof.sources import GivenRow, finished_sequences
from bridgepack.proof.verify.ingredients import as_text
from bridgepack.records import TRAIN
from bridgepack.records.manifests import TOKENIZER_NAMES

_NO_END = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRows:
    """Derives the rows of a split from the token store."""

    store: TokenStore
    names: tuple[str, ...]
    ranges: tuple[RangeRecord, ...]
    policy: SequencePolicy  #: the recipe's settings for over-long sequences

    def rows(self, file_index: int, rows: set[int]) -> Iterator[GivenRow]:
        """Yield some rows of an input, after checking the needed token files against their checksums.

        Raises:
            StoreError: a token file is missing or broken.
        """
        wanted = np.array(sorted(rows), dtype=np.int64)
        parts = sorted((part.first_row, part.token_file) for part in self.ranges if part.file_index == file_index)
        for (first_row, name), (stop, _) in pairwise([*parts, (_NO_END, "")]):
            start, end = np.searchsorted(wanted, [first_row, stop])
            if start < end:
                yield from self._rows_of_range(self.store.path_of(name), first_row, wanted[start:end].tolist())

    def label(self, file_index: int) -> str:
        """Return the input's name for messages."""
        return f"the stored tokens of {self.names[file_index]}"

    def _rows_of_range(self, path: Path, first_row: int, rows: Sequence[int]) -> Iterator[GivenRow]:
        check_token_file(path)
        index, arrays = read_token_index(path), token_arrays(path)
        places = {int(offset): place for place, offset in enumerate(index.row_offsets)}
        drops = dict(zip(index.drop_rows.tolist(), index.drop_kinds.tolist(), strict=True))
        losses: dict[int, tuple[Loss, ...]] = {}
        for offset, kind in zip(index.loss_rows.tolist(), index.loss_kinds.tolist(), strict=True):
            losses[offset] = (*losses.get(offset, ()), Loss(*index.kinds[kind]))
        for row in rows:
            offset = row - first_row
            if offset in places:
                ids, mask = arrays.sequence(places[offset])
                made = finished_sequences(self.policy, ids, mask, int(index.num_context[places[offset]]))
                yield from ((row, item, losses.get(offset, ())) for item in made)
            elif offset in drops:
                yield row, RowError(*index.kinds[drops[offset]]), ()


def stored_rows(
    artifact: Artifact, recipe: SFTRecipe, store: TokenStore, record: BuildRecord, split: str
) -> StoredRows:
    """Return the giver of a split's rows; rows that were set aside for validation are in those of training.

    Raises:
        StoreError: the build's record lacks the split.
    """
    source = TRAIN if recipe.data.validation_fraction > 0 else split
    if source not in record.ranges:
        raise StoreError(f"the build's record in the token store has no {source} rows.")
    return StoredRows(
        store=store,
        names=tuple(item.path for item in artifact.split(split).inputs),
        ranges=tuple(record.ranges[source]),
        policy=SequencePolicy.of(recipe.resolve(), artifact.manifest.tokenizer),
    )


def record_of(artifact: Artifact, store: TokenStore) -> BuildRecord:
    """Return the record of an artifact's token files; raises StoreError if the store has no record of the artifact."""
    record = find_build_record(store, artifact.manifest.fingerprint)
    if record is None:
        raise StoreError(
            f"the token store {str(store.folder)!r} has no record of this artifact: it was built with another --store, "
            "on another machine, or the store was emptied"
        )
    return record


def token_files(store: TokenStore, record: BuildRecord) -> list[Path]:
    """Return the token files that an artifact was made from, each once; some may be missing."""
    names = dict.fromkeys(item.token_file for ranges in record.ranges.values() for item in ranges)
    return [store.path_of(name) for name in names]


def tokenizer_problem(artifact: Artifact, files: Sequence[Path]) -> str | None:
    """Return how the tokenizer of the token files differs from the manifest's; None if it does not.

    Raises:
        StoreError: the store does not record it.
    """
    then = {name: value for name, value in artifact.manifest.tokenizer.items() if name not in TOKENIZER_NAMES}
    for folder in sorted({path.parents[1] for path in files}):
        known = _identity(folder)["tokenizer"]
        names = [name for name in sorted({*then, *known}) if as_text(then.get(name)) != as_text(known.get(name))]
        if names:
            return f"the tokens were made by a tokenizer that differs from the manifest's in: {', '.join(names)}"
    return None


def has_tokens(artifact: Artifact) -> bool:
    """Return whether the artifact's own store has all its tokens."""
    try:
        store = existing_store(default_store(artifact.folder))
        return all(path.is_file() for path in token_files(store, record_of(artifact, store)))
    except (StoreError, OSError):
        return False


def packed_anew(artifact: Artifact, store: TokenStore, output: Path, *, num_workers: int, progress: Progress) -> Path:
    """Return the folder of an artifact packed again from the store, without adding a record to the store."""
    options = BuildOptions(num_workers=num_workers, store=store.folder)
    try:
        balance = artifact.manifest.balance
        folder = artifact.folder
        return repack_artifact(folder, {}, output=output, progress=progress, options=options, balance=balance).output
    finally:
        for record in iter_build_records(store):
            if record.output == output.resolve():
                record.path.unlink(missing_ok=True)


def _identity(folder: Path) -> dict[str, Any]:
    """Return a tokenisation's identity, after checking it against the folder's name, its digest."""
    try:
        identity = json.loads((folder / IDENTITY_FILE).read_text(encoding="utf-8"))["depends_on"]
        if store_key(identity) == folder.name and isinstance(identity["tokenizer"], dict):
            return dict(identity)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise StoreError(
        f"{str(folder / IDENTITY_FILE)!r} was changed after the build, so the origin of the tokens is unknown"
    )
