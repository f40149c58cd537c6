"""Packed shards for `bridgepack check`: several processes read, hash and decode parts of them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bridgepack.data.artifact.artifact import PLAN_FOLDER, changed_files, leaves, unlisted_files
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.discovery import FoundShards, find_shards, is_pattern
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.files import refuse_name
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.reading.remote import CloudPath
from bridgepack.data.shards.npy import NPY_SUFFIX, iter_npy_batches, read_npy_facts
from bridgepack.data.shards.row_groups import iter_row_groups, read_shard_facts, why_not_openable
from bridgepack.data.tasks import InThisProcess
from bridgepack.data.workers.pool import PlainRunner, plain_runner
from bridgepack.errors import ArtifactError
from bridgepack.records import MetadataFacts, RowBatch, ShardFacts

#: A process takes about a second to start; in that time another one reads and checks half of this.
BYTES_PER_WORKER = 1 << 27
#: Up to this total size in bytes, shards are hashed before any is opened and are still in memory when their rows are
#: read. For larger artifacts a child process opens the footers first, which takes half a second.
_HASHED_FIRST_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class PartsOnDisk:
    """Reads parts of the shards in a folder; small when pickled, because each task carries it."""

    folder: Path

    def iter_batches(
        self, shard: str, *, row_groups: range | None = None, first_row: int = 0, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of some row groups, or of the whole shard, in order; a `.npy` file is loaded whole.

        Raises:
            ArtifactError: the rows cannot be read completely, or a row or an element is null.
        """
        path = self.folder / shard
        if _is_npy(shard):
            yield from iter_npy_batches(path, shard, max_tokens=max_tokens)
        else:
            yield from iter_row_groups(path, shard, max_tokens=max_tokens, row_groups=row_groups, first_row=first_row)

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal; raises DataError if it cannot be read."""
        return hash_file(self.folder / shard)

    def facts(self, shard: str) -> ShardFacts:
        """Return the facts of a shard's footer or of a `.npy` file, without its hash."""
        read = read_npy_facts if _is_npy(shard) else read_shard_facts
        return read(self.folder / shard, shard)


class ArtifactOnDisk:
    """Facts about packed shards on disk, ours or another tool's; broken files do not raise.

    Attributes:
        manifest: None for packs that another tool wrote.
        folder: what the paths of shards are relative to.
        parts: reads parts of shards.
        tasks: runs tasks, in this process unless another runner is set.
    """

    def __init__(self, target: Path, *, may_lack_manifest: bool = False) -> None:
        """Open a target.

        Args:
            target: an artifact; a folder with packed files (`.parquet`, `.pq`, or `.npy` of megatron-bridge 0.3) in it
                or in sub-folders named like splits; one such file; or a pattern with `*` or `?` that matches some.
            may_lack_manifest: also accepts packs that a build wrote whose manifest is missing.

        Raises:
            ArtifactError: it is none of these, or its manifest is missing or cannot be read.
        """
        if target.exists() and not (target.is_dir() or target.is_file()):
            raise ArtifactError(f"{str(target)!r} is neither a file nor a folder. Give an artifact, or a packed file.")
        has_manifest = (target / MANIFEST_FILE).exists()
        if not has_manifest and (target / PLAN_FOLDER).is_dir() and not may_lack_manifest:
            raise ArtifactError(
                f"{str(target)!r} has no {MANIFEST_FILE}, but its {PLAN_FOLDER}/ shows that bridgepack built it. Copy "
                "the whole artifact again, or rebuild it. To check only its packs, give the manifest's values, e.g. "
                "--given packed_sequence_size=4096."
            )
        self._found = FoundShards(folder=target) if has_manifest else find_shards(target)
        if not self._found.splits and is_pattern(target) and not target.exists():
            raise ArtifactError(
                f"{str(target)!r} matches no .parquet, .pq or .npy file. Give a pattern that does, or a folder. As in "
                "Megatron-Bridge, `**` is one level."
            )
        self.manifest = None if self._found.splits else read_manifest(target)
        self.folder = self._found.folder
        for path in (target, *(self.folder / name for name in self._found.paths)):
            refuse_name(path, ArtifactError, "target is")
        self.parts = PartsOnDisk(folder=self.folder)
        self.tasks = PlainRunner(InThisProcess())

    @property
    def name_hints(self) -> Mapping[str, int]:
        """`packed_sequence_size` and `pad_seq_to_mult` as file names state them, for packs without a manifest."""
        return {} if self.manifest is not None else self._found.name_hints()

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first."""
        return tuple(self._shards)

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: the shards that the manifest lists, or those found.

        They include hashes if those were needed before opening.
        """
        names = self._shards.get(split, ())
        facts = iter(self.tasks.run(self.parts.facts, [name for name in names if name not in self._refused_shards]))
        return tuple(
            replace(self._refused_shards.get(name) or next(facts), sha256=self._known_hashes.get(name))
            for name in names
        )

    def unlisted_files(self) -> tuple[str, ...]:
        """Return paths of files in the artifact that its manifest does not list, sorted."""
        return unlisted_files(self.folder, self.manifest) if self.manifest is not None else ()

    def changed_files(self) -> Mapping[str, str]:
        """Return path -> problem, for files other than shards that do not match the manifest."""
        return changed_files(self.folder, self.manifest) if self.manifest is not None else {}

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
        path = self._found.metadata_path() if self.manifest is None else self.folder / BRIDGE_METADATA_FILE
        name = BRIDGE_METADATA_FILE if path is None else path.name
        if path is None or not path.is_file():
            return MetadataFacts(path=name, exists=False)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return MetadataFacts(path=name, exists=True, read_error=str(error))
        return MetadataFacts(path=name, exists=True, content=content)

    def num_bytes(self) -> int:
        """Return the total size in bytes of the existing shards."""
        paths = [self.folder / name for names in self._shards.values() for name in names]
        return sum(path.stat().st_size for path in paths if path.is_file())

    @cached_property
    def _shards(self) -> Mapping[str, tuple[str, ...]]:
        if self.manifest is None:
            return self._found.splits
        return {split.name: tuple(shard.path for shard in split.shards) for split in self.manifest.splits}

    @cached_property
    def _outside(self) -> frozenset[str]:
        """Shards that the manifest lists but that lie outside the artifact; they are not opened."""
        names_of_splits = self._shards.values() if self.manifest is not None else ()
        return frozenset(name for names in names_of_splits for name in names if leaves(self.folder, name))

    @cached_property
    def _parquet_names(self) -> list[str]:
        names = [name for names in self._shards.values() for name in names if name not in self._outside]
        return [name for name in names if not _is_npy(name) and (self.folder / name).is_file()]

    @cached_property
    def _known_hashes(self) -> Mapping[str, str]:
        """Shard -> sha256, for shards that are compared with the manifest before they are opened."""
        is_far = isinstance(self.folder, CloudPath)  # there, only shards that match the manifest are opened
        if self.manifest is None or (self.num_bytes() > _HASHED_FIRST_BYTES and not is_far):
            return {}
        return dict(zip(self._parquet_names, self.tasks.run(self.parts.sha256, self._parquet_names), strict=True))

    @cached_property
    def _refused_shards(self) -> Mapping[str, ShardFacts]:
        """Shard -> its facts, for shards outside the artifact or that crash the process that opens them."""
        splits = self.manifest.splits if self.manifest is not None else ()
        hashes_of_manifest = {shard.path: shard.sha256 for split in splits for shard in split.shards}
        hashes = self._known_hashes
        names = {
            self.folder / name: name
            for name in self._parquet_names
            if hashes.get(name, "") != hashes_of_manifest.get(name)
        }
        problem = "it lies outside the artifact"
        facts = {name: ShardFacts(path=name, exists=False, read_error=problem) for name in self._outside}
        for path, reason in why_not_openable(list(names)).items():
            size = path.stat().st_size
            facts[names[path]] = ShardFacts(path=names[path], exists=True, num_bytes=size, read_error=reason)
        return facts


@contextmanager
def opened_for_check(
    target: Path, *, num_workers: int = 1, may_lack_manifest: bool = False
) -> Iterator[ArtifactOnDisk]:
    """Yield an artifact with a runner, which an error or Ctrl-C stops at once; little data gets fewer processes.

    Raises:
        ArtifactError: it is not an artifact, or its manifest is missing and `may_lack_manifest` is false.
    """
    artifact = ArtifactOnDisk(target, may_lack_manifest=may_lack_manifest)
    with plain_runner(min(num_workers, artifact.num_bytes() // BYTES_PER_WORKER)) as artifact.tasks:
        yield artifact


def _is_npy(shard: str) -> bool:
    return shard.lower().endswith(NPY_SUFFIX)
