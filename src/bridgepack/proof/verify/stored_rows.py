"""The door to stored tokens: derives rows, or a whole artifact, from the token store, without sources or tokenizer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.over_long import OverLongPolicy
from bridgepack.data.store.keys import tokenization_key
from bridgepack.data.store.records import BuildRecord, RangeRecord, find_build_record, iter_build_records
from bridgepack.data.store.store import IDENTITY_FILE, TokenStore, default_store, existing_store
from bridgepack.data.store.token_file import check_token_file, read_token_index, token_arrays
from bridgepack.data.tasks import Progress
from bridgepack.errors import RowError, StoreError
from bridgepack.proof.packs import split_record
from bridgepack.proof.sources import GivenRow, finished_sequences
from bridgepack.proof.verify.ingredients import as_text
from bridgepack.records import TRAIN
from bridgepack.records.fingerprints import TOKENIZER_NAMES

_NO_END = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRows:
    """Gives the rows of a split from the token store."""

    store: TokenStore
    names: tuple[str, ...]
    ranges: tuple[RangeRecord, ...]
    policy: OverLongPolicy  #: what becomes of sequences in the light of the recipe's sizes

    def rows(self, file_index: int, rows: set[int]) -> Iterator[GivenRow]:
        """Yield some rows of an input; every token file that is needed is first compared with its checksums.

        Raises:
            StoreError: a token file is gone or broken.
        """
        wanted = np.array(sorted(rows), dtype=np.int64)
        parts = sorted((part.first_row, part.token_file) for part in self.ranges if part.file_index == file_index)
        for (first_row, name), (stop, _) in pairwise([*parts, (_NO_END, "")]):
            start, end = np.searchsorted(wanted, [first_row, stop])
            if start < end:
                yield from self._rows_of_range(self.store.path_of(name), first_row, wanted[start:end].tolist())

    def label(self, file_index: int) -> str:
        """Return what the input is called."""
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
    """Return what gives the rows of a split; rows that were set aside for validation are among those of training.

    Raises:
        StoreError: the record does not know the split.
    """
    source = TRAIN if recipe.data.validation_fraction > 0 else split
    if source not in record.ranges:
        raise StoreError(f"the record of the build in the token store knows no {source} rows.")
    return StoredRows(
        store=store,
        names=tuple(item.path for item in split_record(artifact, split).inputs),
        ranges=tuple(record.ranges[source]),
        policy=OverLongPolicy.of(recipe.resolve(), artifact.manifest.tokenizer),
    )


def record_of(artifact: Artifact, store: TokenStore) -> BuildRecord:
    """Return which tokens an artifact was made of.

    Raises:
        StoreError: the store knows nothing of the artifact.
    """
    record = find_build_record(store, artifact.manifest.fingerprint)
    if record is None:
        raise StoreError(
            f"the token store {str(store.folder)!r} knows nothing of this artifact: it was built with another --store, "
            "on another machine, or the store was emptied"
        )
    return record


def token_files(store: TokenStore, record: BuildRecord) -> list[Path]:
    """Return the files of the tokens that an artifact was made of, each once; some may be gone."""
    names = dict.fromkeys(item.token_file for ranges in record.ranges.values() for item in ranges)
    return [store.path_of(name) for name in names]


def tokenizer_problem(artifact: Artifact, files: Sequence[Path]) -> str | None:
    """Return how the tokenizer that made token files is not the one of the manifest; None where it is.

    Raises:
        StoreError: the store does not say what made them.
    """
    then = {name: value for name, value in artifact.manifest.tokenizer.items() if name not in TOKENIZER_NAMES}
    for folder in sorted({path.parents[1] for path in files}):
        known = _identity(folder)["tokenizer"]
        names = [name for name in sorted({*then, *known}) if as_text(then.get(name)) != as_text(known.get(name))]
        if names:
            return f"another tokenizer than the manifest's made the tokens; others are: {', '.join(names)}"
    return None


def store_of(artifact: Artifact, folder: Path | None) -> TokenStore:
    """Return the store in a folder, by default that of the artifact.

    Raises:
        StoreError: there is none.
    """
    return existing_store(folder or default_store(artifact.folder))


def has_tokens(artifact: Artifact) -> bool:
    """Say whether the artifact's own store has all of its tokens."""
    try:
        store = store_of(artifact, None)
        return all(path.is_file() for path in token_files(store, record_of(artifact, store)))
    except (StoreError, OSError):
        return False


def packed_anew(artifact: Artifact, store: TokenStore, output: Path, *, num_workers: int, progress: Progress) -> Path:
    """Pack an artifact's sequences anew from the store, leave no trace of that in it, and return the folder.

    Raises:
        BridgepackError: as `repack_artifact`.
    """
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
    """Return what a tokenisation depends on; the folder's name is a digest of that."""
    try:
        identity = json.loads((folder / IDENTITY_FILE).read_text(encoding="utf-8"))["depends_on"]
        if tokenization_key(identity) == folder.name and isinstance(identity["tokenizer"], dict):
            return dict(identity)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise StoreError(
        f"{str(folder / IDENTITY_FILE)!r} is not what the build wrote, so nothing says what made the tokens"
    )
