"""Reads an artifact: its manifest, rows, and the facts that `bridgepack check` judges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.discovery import FoundShards, find_shards, is_pattern
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.npy import NPY_SUFFIX, iter_npy_batches, read_npy_facts
from bridgepack.data.shards.opening import refuse_deadly
from bridgepack.data.shards.read import read_shard_facts, read_shard_row
from bridgepack.data.shards.row_groups import iter_row_groups
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
            refuse_deadly(self.folder / shard.path, shard)
            yield from iter_row_groups(self.folder / shard.path, shard.path, max_tokens=max_tokens)

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
                refuse_deadly(self.folder / shard.path, shard)
                return read_shard_row(self.folder / shard.path, shard.path, index)
            index -= shard.num_rows
        raise ArtifactError(f"{str(self.folder)!r}: its manifest's shards have fewer rows than its statistics say.")


class ArtifactOnDisk:
    """Packed shards on disk, ours or another tool's, as facts; broken files raise nothing.

    Attributes:
        folder: what the paths of shards are relative to.
    """

    def __init__(self, target: Path, *, hashes: bool = True, metadata: Path | None = None) -> None:
        """Open a target.

        Args:
            target: an artifact; a folder with packed files (`.parquet`, `.pq`, or `.npy` of megatron-bridge 0.3) in it
                or in sub-folders named like splits; one such file; or a pattern with `*` or `?` that gives such files.
            hashes: compute the sha256 of every shard, which reads them whole.
            metadata: the host's metadata file; by default the one in the folder, where the target is all of its files.

        Raises:
            ArtifactError: when it is no such thing, or has a manifest that cannot be read.
        """
        self._hashes = hashes
        self._metadata = metadata
        has_manifest = (target / MANIFEST_FILE).exists()
        self._found = FoundShards(folder=target) if has_manifest else find_shards(target)
        self._manifest = None if self._found.splits else _read_manifest_of(target)
        self.folder = self._found.folder

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""
        return self._manifest

    @property
    def name_hints(self) -> Mapping[str, int]:
        """What names tell where there is no manifest: `packed_sequence_size`, `pad_seq_to_mult`, or neither."""
        return {} if self._manifest is not None else self._found.name_hints()

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first."""
        if self._manifest is not None:
            return tuple(split.name for split in self._manifest.splits)
        return tuple(self._found.splits)

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
        path, name = self._metadata_path()
        if not path.is_file():
            return MetadataFacts(path=name, exists=False)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return MetadataFacts(path=name, exists=True, read_error=str(error))
        return MetadataFacts(path=name, exists=True, content=content)

    def iter_shard_batches(self, shard: str, *, max_tokens: int) -> Iterator[RowBatch]:
        """Yield the rows of one shard in order, in batches of bounded memory; a `.npy` file is loaded whole.

        Raises:
            ArtifactError: the shard cannot be read to its end, or a row or an element of it is null.
        """
        read = iter_npy_batches if _is_npy(shard) else iter_row_groups
        yield from read(self.folder / shard, shard, max_tokens=max_tokens)

    def _facts(self, name: str) -> ShardFacts:
        path = self.folder / name
        sha256 = hash_file(path) if self._hashes and path.is_file() else None
        return read_npy_facts(path, name, sha256) if _is_npy(name) else read_shard_facts(path, name, sha256)

    def _shard_names(self, split: str) -> tuple[str, ...]:
        record = self._manifest.split(split) if self._manifest else None
        if record is not None:
            return tuple(shard.path for shard in record.shards)
        return self._found.splits.get(split, ())

    def _metadata_path(self) -> tuple[Path, str]:
        """Return the metadata file, whether it is there or not, and what to call it."""
        if self._metadata is not None:
            return self._metadata, str(self._metadata)
        found = self._found.metadata_path() if self._manifest is None else self.folder / BRIDGE_METADATA_FILE
        return (found, found.name) if found is not None else (Path(), BRIDGE_METADATA_FILE)


def _is_npy(name: str) -> bool:
    return name.lower().endswith(NPY_SUFFIX)


def _read_manifest_of(target: Path) -> Manifest:
    """Return a target's manifest.

    Raises:
        ArtifactError: when there is none, or it cannot be read.
    """
    if is_pattern(target) and not target.exists():
        raise ArtifactError(
            f"{str(target)!r} matches no .parquet, .pq or .npy file. Give a pattern that does, or a folder; `**` is "
            "one level, as in the host."
        )
    return read_manifest(target)
