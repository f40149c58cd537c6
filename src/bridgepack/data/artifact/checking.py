"""Opens an artifact for a check: read in parts, hashed and decoded by several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bridgepack.data.artifact.artifact import ArtifactOnDisk
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.npy import NPY_SUFFIX, iter_npy_batches, read_npy_facts
from bridgepack.data.shards.opening import why_not_openable
from bridgepack.data.shards.read import read_shard_facts
from bridgepack.data.shards.row_groups import iter_row_groups
from bridgepack.data.tasks import InThisProcess
from bridgepack.data.workers.pool import PlainRunner, plain_runner
from bridgepack.records import RowBatch, ShardFacts

#: A process takes about a second to start; another one reads and judges half of this meanwhile.
BYTES_PER_WORKER = 1 << 27
#: Shards of so many bytes in all are hashed before any is opened, and are in memory still when their rows are read; of
#: larger artifacts a child process opens the footers, which takes half a second.
_HASHED_FIRST_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class PartsOnDisk:
    """Reads parts of shards; small when pickled, since each task carries it.

    Attributes:
        folder: what the paths of shards are relative to.
    """

    folder: Path

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of some row groups, or of the whole shard, in order; a `.npy` file is loaded whole.

        Raises:
            ArtifactError: they cannot be read to their end, or a row or an element is null.
        """
        path = self.folder / shard
        if _is_npy(shard):
            yield from iter_npy_batches(path, shard, max_tokens=max_tokens)
        else:
            yield from iter_row_groups(path, shard, max_tokens=max_tokens, row_groups=row_groups, first_row=first_row)

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal.

        Raises:
            DataError: it cannot be read.
        """
        return hash_file(self.folder / shard)

    def facts(self, shard: str) -> ShardFacts:
        """Return what a shard's footer says, or what a `.npy` file holds; no hash."""
        read = read_npy_facts if _is_npy(shard) else read_shard_facts
        return read(self.folder / shard, shard, None)


class ArtifactInParts(ArtifactOnDisk):
    """Packed shards on disk, read in parts by a runner's processes; the scan hashes them.

    Attributes:
        parts: reads the parts.
        tasks: runs the tasks.
    """

    def __init__(self, target: Path, *, metadata: Path | None = None) -> None:
        """Open a target as `ArtifactOnDisk` does; tasks run in this process until `tasks` is set.

        Raises:
            ArtifactError: when it is no artifact.
        """
        super().__init__(target, hashes=False, metadata=metadata)
        self.parts = PartsOnDisk(folder=self.folder)
        self.tasks = PlainRunner(InThisProcess())

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order; with hashes where they had to be known before opening."""
        names = self._shard_names(split)
        found = iter(self.tasks.run(self.parts.facts, [name for name in names if name not in self._deadly]))
        return tuple(
            replace(self._deadly.get(name) or next(found), sha256=self._known_hashes.get(name)) for name in names
        )

    def num_bytes(self) -> int:
        """Return the size of all shards that are there."""
        paths = [self.folder / name for split in self.split_names for name in self._shard_names(split)]
        return sum(path.stat().st_size for path in paths if path.is_file())

    @cached_property
    def _known_hashes(self) -> Mapping[str, str]:
        """Shard -> sha256 of those that are compared with the manifest before they are opened."""
        if self.manifest is None or self.num_bytes() > _HASHED_FIRST_BYTES:
            return {}
        names = self._parquet_names()
        return dict(zip(names, self.tasks.run(self.parts.sha256, names), strict=True))

    @cached_property
    def _deadly(self) -> Mapping[str, ShardFacts]:
        """Shard -> its facts, of those that end a process that opens them."""
        splits = self.manifest.splits if self.manifest is not None else ()
        promised = {shard.path: shard.sha256 for split in splits for shard in split.shards}
        names = {
            self.folder / name: name
            for name in self._parquet_names()
            if name not in self._known_hashes or self._known_hashes[name] != promised[name]
        }
        return {
            names[path]: ShardFacts(path=names[path], exists=True, num_bytes=path.stat().st_size, read_error=reason)
            for path, reason in why_not_openable(list(names)).items()
        }

    def _parquet_names(self) -> list[str]:
        """Return the Parquet shards that are there."""
        names = [name for split in self.split_names for name in self._shard_names(split)]
        return [name for name in names if not _is_npy(name) and (self.folder / name).is_file()]


@contextmanager
def opened_for_check(target: Path, *, metadata: Path | None = None, num_workers: int = 1) -> Iterator[ArtifactInParts]:
    """Give an artifact with a runner, which an error or Ctrl-C ends at once; little data gets fewer processes.

    Args:
        target: as for `ArtifactOnDisk`.
        metadata: the host's metadata file; by default the artifact's.
        num_workers: most processes.

    Raises:
        ArtifactError: when it is no artifact.
    """
    artifact = ArtifactInParts(target, metadata=metadata)
    with plain_runner(min(num_workers, artifact.num_bytes() // BYTES_PER_WORKER)) as artifact.tasks:
        yield artifact


def _is_npy(shard: str) -> bool:
    return shard.lower().endswith(NPY_SUFFIX)
