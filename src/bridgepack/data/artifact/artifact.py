"""An artifact that has a manifest, and its rows."""

from collections.abc import Iterator
from pathlib import Path

from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.shards.opening import refuse_deadly
from bridgepack.data.shards.row_groups import iter_row_groups, read_shard_row
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow, RowBatch

PLAN_FOLDER = "plan"
DROPPED_ROWS_FILE = "dropped.jsonl"
LOST_CONTENT_FILE = "lost_content.jsonl"


class Artifact:
    """An artifact that has a manifest."""

    def __init__(self, folder: Path) -> None:
        """Open an artifact.

        Raises:
            ArtifactError: when the folder is none.
        """
        self.folder = folder
        self.manifest = read_manifest(folder)

    def iter_batches(self, split: str, *, max_tokens: int = 1 << 22) -> Iterator[RowBatch]:
        """Yield the split's rows in order, in batches of bounded memory.

        Raises:
            ArtifactError: when there is no such split, or a shard cannot be read.
        """
        record = self.manifest.split(split)
        if record is None:
            names = ", ".join(item.name for item in self.manifest.splits)
            raise ArtifactError(f"split is {split!r}; {str(self.folder)!r} has: {names}. Choose one of these.")
        for shard in record.shards:
            refuse_deadly(self.folder / shard.path, shard)
            yield from iter_row_groups(self.folder / shard.path, shard.path, max_tokens=max_tokens)

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
                refuse_deadly(self.folder / shard.path, shard)
                return read_shard_row(self.folder / shard.path, shard.path, index)
            index -= shard.num_rows
        raise ArtifactError(f"{str(self.folder)!r}: its manifest's shards have fewer rows than its statistics say.")
