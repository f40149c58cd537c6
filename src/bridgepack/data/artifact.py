"""Reads an artifact: its manifest, rows, and the facts that `bridgepack check` judges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bridgepack.data.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.inputs import hash_file
from bridgepack.data.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.shards import iter_shard_batches, list_shards, read_shard_facts, read_shard_row
from bridgepack.errors import ArtifactError
from bridgepack.records import SPLITS, Manifest, MetadataFacts, PackedRow, RowBatch, ShardFacts

PLAN_FOLDER = "plan"
DROPPED_ROWS_FILE = "dropped.jsonl"


class Artifact:
    """An artifact that has a manifest."""

    def __init__(self, folder: Path) -> None:
        """Open an artifact.

        Raises:
            ArtifactError: when the folder is none.
        """
        self.folder = folder
        self._manifest = read_manifest(folder)

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self._manifest

    def iter_batches(self, split: str, *, max_tokens: int = 1 << 22) -> Iterator[RowBatch]:
        """Yield the split's rows in order, in batches of bounded memory.

        Raises:
            ArtifactError: when there is no such split, or a shard cannot be read.
        """
        record = self._manifest.split(split)
        if record is None:
            names = ", ".join(item.name for item in self._manifest.splits)
            raise ArtifactError(f"split is {split!r}; {str(self.folder)!r} has: {names}. Choose one of these.")
        for shard in record.shards:
            yield from iter_shard_batches(self.folder / shard.path, shard.path, max_tokens=max_tokens)

    def row(self, split: str, index: int) -> PackedRow:
        """Return one pack by its 0-based position in the split.

        Raises:
            ArtifactError: when the split or the row does not exist, or its shard cannot be read.
        """
        record = self._manifest.split(split)
        num_rows = record.statistics.num_packs if record else 0
        if record is None or not 0 <= index < num_rows:
            allowed = f"0 to {num_rows - 1}" if num_rows else f"none, there is no split {split!r}"
            raise ArtifactError(f"row is {index}; allowed: {allowed}. Choose another row or split.")
        for shard in record.shards:
            if index < shard.num_rows:
                return read_shard_row(self.folder / shard.path, shard.path, index)
            index -= shard.num_rows
        raise ArtifactError(f"{str(self.folder)!r}: its manifest's shards have fewer rows than its statistics say.")


class ArtifactOnDisk:
    """Any folder of packed shards, ours or another tool's, as facts; broken files raise nothing."""

    def __init__(self, folder: Path, *, hashes: bool = True) -> None:
        """Open a folder.

        Args:
            folder: an artifact, or a folder with `*.idx.parquet` files.
            hashes: compute the sha256 of every shard, which reads them whole.

        Raises:
            ArtifactError: when it is no folder, has a manifest that cannot be read, or has no shards.
        """
        self.folder = folder
        self._hashes = hashes
        has_manifest = (folder / MANIFEST_FILE).exists()
        self._manifest = read_manifest(folder) if has_manifest or not _found_splits(folder) else None

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""
        return self._manifest

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first."""
        if self._manifest is not None:
            return tuple(split.name for split in self._manifest.splits)
        return tuple(_found_splits(self.folder))

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: those the manifest lists, or those found."""
        return tuple(self._facts(name) for name in self._shard_names(split))

    def unlisted_shards(self) -> tuple[str, ...]:
        """Return paths of Parquet files in the artifact that its manifest does not list, sorted."""
        if self._manifest is None:
            return ()
        listed = {shard.path for split in self._manifest.splits for shard in split.shards}
        folders = [self.folder, *(self.folder / name for name in SPLITS)]
        found = [path for folder in folders for path in folder.glob("*.p*q*") if path.suffix in {".parquet", ".pq"}]
        return tuple(sorted({str(path.relative_to(self.folder)) for path in found} - listed))

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
        path = self.folder / BRIDGE_METADATA_FILE
        if not path.is_file():
            return MetadataFacts(path=BRIDGE_METADATA_FILE, exists=False)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return MetadataFacts(path=BRIDGE_METADATA_FILE, exists=True, read_error=str(error))
        return MetadataFacts(path=BRIDGE_METADATA_FILE, exists=True, content=content)

    def iter_shard_batches(self, shard: str, *, max_tokens: int) -> Iterator[RowBatch]:
        """Yield the rows of one shard in order, in batches of bounded memory.

        Raises:
            ArtifactError: the shard cannot be read to its end, or a row or an element of it is null.
        """
        yield from iter_shard_batches(self.folder / shard, shard, max_tokens=max_tokens)

    def _facts(self, name: str) -> ShardFacts:
        path = self.folder / name
        sha256 = hash_file(path) if self._hashes and path.is_file() else None
        return read_shard_facts(path, name, sha256)

    def _shard_names(self, split: str) -> tuple[str, ...]:
        record = self._manifest.split(split) if self._manifest else None
        if record is not None:
            return tuple(shard.path for shard in record.shards)
        return tuple(str(path.relative_to(self.folder)) for path in _found_splits(self.folder).get(split, ()))


def _found_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the splits of a folder without a manifest: sub-folders by name, or the folder itself as training."""
    if not folder.is_dir():
        return {}
    found = {name: list(list_shards(folder / name)) for name in SPLITS if (folder / name).is_dir()}
    found = {name: paths for name, paths in found.items() if paths}
    if found:
        return found
    paths = list(list_shards(folder))
    by_split = {name: [path for path in paths if path.name.startswith(name)] for name in SPLITS}
    named = {name: members for name, members in by_split.items() if members}
    return named or ({SPLITS[0]: paths} if paths else {})
