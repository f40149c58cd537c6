"""An artifact that has a manifest, and its rows."""

from collections.abc import Iterator
from pathlib import Path

from bridgepack.data.artifact.contents import leaves, refuse_changed, refuse_npy, shard_problem
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.files import refuse_name
from bridgepack.data.shards.opening import why_not_openable
from bridgepack.data.shards.row_groups import iter_row_groups, read_shard_row
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow, RowBatch, ShardRecord


class Artifact:
    """An artifact that has a manifest."""

    def __init__(self, folder: Path, *, may_be_changed: bool = False) -> None:
        """Open an artifact; `may_be_changed` also accepts one whose files have changed since the build.

        Raises:
            ArtifactError: the folder is not an artifact, or its files do not match its manifest.
        """
        self.folder = folder
        self.manifest = read_manifest(folder)
        refuse_name(folder, ArtifactError, "artifact is")
        self._may_be_changed = may_be_changed
        if not may_be_changed:
            refuse_changed(folder, self.manifest)

    def path_of(self, shard: ShardRecord) -> Path:
        """Return the path of a shard, after checking that it can be opened.

        Raises:
            ArtifactError: it is not Parquet, lies outside the artifact, was changed, or would crash this process.
        """
        refuse_npy(self.folder, [shard])
        path, problem = self.folder / shard.path, shard_problem(self.folder, shard)
        if problem is not None and (not self._may_be_changed or leaves(self.folder, shard.path)):
            raise ArtifactError(
                f"{shard.path} of {str(self.folder)!r} was changed: {problem}. Build the artifact again."
            )
        for reason in why_not_openable([path] if problem is not None and path.is_file() else []).values():
            raise ArtifactError(f"{shard.path} cannot be read: {reason}. Build the artifact again.")
        return path

    def iter_batches(self, split: str, *, max_tokens: int = 1 << 22) -> Iterator[RowBatch]:
        """Yield the split's rows in order, in batches of bounded memory.

        Raises:
            ArtifactError: the split does not exist, or a shard cannot be read.
        """
        record = self.manifest.split(split)
        if record is None:
            names = ", ".join(item.name for item in self.manifest.splits)
            raise ArtifactError(f"split is {split!r}; {str(self.folder)!r} has: {names}. Choose one of these.")
        for shard in record.shards:
            yield from iter_row_groups(self.path_of(shard), shard.path, max_tokens=max_tokens)

    def row(self, split: str, index: int) -> PackedRow:
        """Return one pack by its 0-based position in the split.

        Raises:
            ArtifactError: when the split or the row does not exist, or its shard cannot be read.
        """
        record = self.manifest.split(split)
        num_rows = record.statistics.num_packs if record else 0
        if record is None or not 0 <= index < num_rows:
            allowed = f"0 to {num_rows - 1}" if num_rows else f"none, there is no split {split!r}"
            raise ArtifactError(f"row is {index}; allowed: {allowed}. Choose another row or split.")
        for shard in record.shards:
            if index < shard.num_rows:
                return read_shard_row(self.path_of(shard), shard.path, index)
            index -= shard.num_rows
        raise ArtifactError(f"{str(self.folder)!r}: the manifest's shards have fewer rows than its statistics say.")
