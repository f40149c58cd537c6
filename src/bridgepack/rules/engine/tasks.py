"""The tasks of a scan, in an order that keeps workers busy and files in the page cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched

from bridgepack.records import ShardFacts
from bridgepack.rules.artifact.shards import why_not_streamable
from bridgepack.rules.engine.context import CheckContext
from bridgepack.rules.engine.parts import parts_of
from bridgepack.rules.engine.scanning import BatchRules, PartReader, PartScan, PartTask, scan_part

#: Files are hashed so many at a time, right before their rows are read: hashes run beside one another, and the second
#: reading finds the file in memory.
_FILES_AHEAD = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class HashTask:
    """A file to hash.

    Attributes:
        shard: its path, relative to the artifact.
        reader: hashes it.
        num_bytes: its size.
    """

    shard: str
    reader: PartReader
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardHash:
    """A file's hash.

    Attributes:
        shard: its path, relative to the artifact.
        sha256: of its bytes, hexadecimal.
        num_bytes: its size.
    """

    shard: str
    sha256: str
    num_bytes: int


Task = PartTask | HashTask
TaskResult = PartScan | ShardHash


def run_task(task: Task) -> TaskResult:
    """Return what a task gives.

    Raises:
        RuleCrashError: a rule raised.
    """
    if isinstance(task, PartTask):
        return scan_part(task)
    return ShardHash(shard=task.shard, sha256=task.reader.sha256(task.shard), num_bytes=task.num_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanPlan:
    """What is to be read, and how it is judged.

    Attributes:
        shards: split -> its shards, training first.
        reader: reads parts and hashes files.
        part_tokens: stored tokens of a part; None leaves shards whole.
        hashes_files: hash the shards' files.
        context: what rows are judged against.
        rules: structure and row rules.
        max_examples: places kept per rule.
        max_tokens: stored tokens per batch.
    """

    shards: Mapping[str, tuple[ShardFacts, ...]]
    reader: PartReader
    part_tokens: int | None
    hashes_files: bool
    context: CheckContext
    rules: BatchRules
    max_examples: int
    max_tokens: int

    @property
    def splits_by_size(self) -> list[str]:
        """The splits in the order in which they are read: fewest rows first."""
        return sorted(self.shards, key=lambda split: sum(shard.num_rows or 0 for shard in self.shards[split]))

    @property
    def num_bytes(self) -> int:
        """Bytes of all tasks: those to hash and those to read."""
        shards = [shard for group in self.shards.values() for shard in group]
        hashed = sum(shard.num_bytes or 0 for shard in shards if self._is_hashed(shard))
        return hashed + sum(shard.num_bytes or 0 for shard in shards if why_not_streamable(shard) is None)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks; parts in order, splits by size."""
        has_overlap = sum(any(shard.num_rows for shard in group) for group in self.shards.values()) > 1
        for split in self.splits_by_size:
            for shards in batched(self.shards[split], _FILES_AHEAD):
                yield from self._hash_tasks(shards)
                yield from self._part_tasks(split, shards, has_overlap)

    def _hash_tasks(self, shards: Sequence[ShardFacts]) -> Iterator[HashTask]:
        for shard in shards:
            if self._is_hashed(shard):
                yield HashTask(shard=shard.path, reader=self.reader, num_bytes=shard.num_bytes or 0)

    def _part_tasks(self, split: str, shards: Sequence[ShardFacts], has_overlap: bool) -> Iterator[PartTask]:
        for shard in shards:
            if why_not_streamable(shard) is not None:
                continue
            for part in parts_of(split, shard, part_tokens=self.part_tokens):
                yield PartTask(
                    part=part,
                    reader=self.reader,
                    context=self.context,
                    rules=self.rules,
                    max_examples=self.max_examples,
                    max_tokens=self.max_tokens,
                    has_hashes=has_overlap,
                )

    def _is_hashed(self, shard: ShardFacts) -> bool:
        return self.hashes_files and shard.exists and shard.sha256 is None
