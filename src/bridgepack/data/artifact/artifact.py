"""An artifact that has a manifest: its rows, and whether its files are those of the manifest."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, built_part
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.files import refuse_name
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.reading.remote import CloudPath
from bridgepack.data.shards.npy import NPY_SUFFIX
from bridgepack.data.shards.row_groups import iter_row_groups, read_shard_rows, why_not_openable
from bridgepack.errors import ArtifactError, BridgepackError
from bridgepack.records import FileRecord, Manifest, PackedRow, RowBatch, ShardRecord, SplitRecord

PLAN_FOLDER = "plan"
DROPPED_ROWS_FILE = "dropped.jsonl"
LOST_CONTENT_FILE = "lost_content.jsonl"
REPORT_FILE = "report.html"
#: A user's dataset card, in the place where a hub looks for it.
README_FILE = "README.md"
#: Up to this total size in bytes, opening an artifact hashes all shards; beyond it, only those that are read.
_HASHED_BYTES = 1 << 26
_NAMED = 3


def other_files(splits: Iterable[str]) -> list[str]:
    """Return the paths of an artifact's files other than the manifest and the shards."""
    names = list(splits)
    plans = [f"{PLAN_FOLDER}/{split}.parquet" for split in names]
    ledgers = [f"{PLAN_FOLDER}/{name}" for name in (DROPPED_ROWS_FILE, LOST_CONTENT_FILE)]
    return [BRIDGE_METADATA_FILE, *plans, *map(digests_file, names), *ledgers]


def digests_file(split: str) -> str:
    """Return the path, in an artifact, of the digests of a split's packs; older artifacts lack it."""
    return f"{PLAN_FOLDER}/{split}-digests.parquet"


def leaves(folder: Path, name: str) -> bool:
    """Return whether a path in a manifest leads out of the artifact, directly or through a link."""
    path = PurePosixPath(name)
    is_plain = bool(path.parts) and ".." not in path.parts and not path.is_absolute()
    return not is_plain or not (folder / name).resolve().is_relative_to(folder.resolve())


def shard_problem(folder: Path, record: ShardRecord | FileRecord, *, hashes: bool = True) -> str | None:
    """Return what is wrong with a listed file; None if it is unchanged since the build."""
    path = folder / record.path
    try:
        if leaves(folder, record.path):
            return "it lies outside the artifact"
        if not path.is_file():
            return "it is missing" if not path.exists() else "it is not a regular file"
        if path.stat().st_size != record.num_bytes:
            return f"it has {path.stat().st_size} bytes; the manifest says {record.num_bytes}"
        digest = hash_file(path) if hashes else record.sha256
    except (OSError, BridgepackError) as error:
        return str(error)
    return None if digest == record.sha256 else f"its sha256 is {digest}; the manifest says {record.sha256}"


def refuse_npy(folder: Path, shards: Iterable[ShardRecord]) -> None:
    """Refuse `.npy` shards, which earlier versions exported and only `check` and the host read.

    Raises:
        ArtifactError: a shard is a `.npy` file.
    """
    if any(shard.path.endswith(NPY_SUFFIX) for shard in shards):
        raise ArtifactError(
            f"{str(folder)!r} holds {NPY_SUFFIX} files, an export of an earlier bridgepack; allowed: artifacts of "
            "Parquet files. Give the artifact that it was exported from."
        )


def changed_files(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Return path -> problem, for every listed file other than a shard that changed since the build.

    Entries that the host appends to its metadata do not count as a change.
    """
    problems = {record.path: shard_problem(folder, record) for record in manifest.files}
    for record in manifest.files:
        if record.path == BRIDGE_METADATA_FILE and problems[record.path] and (folder / record.path).is_file():
            content = built_part((folder / record.path).read_bytes(), len(manifest.splits))
            if not leaves(folder, record.path) and hashlib.sha256(content).hexdigest() == record.sha256:
                problems[record.path] = None
    return {path: problem for path, problem in problems.items() if problem}


def unlisted_files(folder: Path, manifest: Manifest) -> tuple[str, ...]:
    """Return the files in an artifact that its manifest does not list, sorted.

    Hidden files, the report and the dataset card are allowed.
    """
    names = [split.name for split in manifest.splits]
    manifest_paths = {shard.path for split in manifest.splits for shard in split.shards} | {MANIFEST_FILE}
    manifest_paths |= {record.path for record in manifest.files} if manifest.files else set(other_files(names))
    manifest_paths |= {REPORT_FILE, README_FILE}
    return tuple(sorted({path for path in _files_below(folder) if path not in manifest_paths}))


def refuse_changed(folder: Path, manifest: Manifest) -> None:
    """Check that an artifact has exactly the files of its manifest, unchanged.

    Raises:
        ArtifactError: names the first files that are changed, missing or additional.
    """
    shards = [shard for split in manifest.splits for shard in split.shards]
    hashes = sum(shard.num_bytes for shard in shards) <= _HASHED_BYTES
    problems = changed_files(folder, manifest)
    outside = [split.name for split in manifest.splits if leaves(folder, split.name)]
    problems |= dict.fromkeys(outside, "this split's folder lies outside the artifact")
    for shard in shards:
        problem = shard_problem(folder, shard, hashes=hashes)
        problems |= {shard.path: problem} if problem else {}
    problems |= dict.fromkeys(unlisted_files(folder, manifest), "the manifest does not list it")
    if problems:
        examples = "; ".join(f"{path}: {problem}" for path, problem in list(problems.items())[:_NAMED])
        more = f"; {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise ArtifactError(
            f"{str(folder)!r} was changed after the build: {examples}{more}. Copy it again or rebuild it; "
            "`bridgepack check` shows what differs."
        )


def _files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of files and of links to folders, without hidden ones."""
    if isinstance(folder, CloudPath):
        yield from (name for name in folder.files_below() if not any(part[0] == "." for part in name.split("/")))
        return
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*links, *files):
            if not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


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
        if path.exists() and not path.is_file():
            raise ArtifactError(f"{shard.path} cannot be read: {problem}. Build the artifact again.")
        for reason in why_not_openable([path] if problem is not None and path.is_file() else []).values():
            raise ArtifactError(f"{shard.path} cannot be read: {reason}. Build the artifact again.")
        return path

    def split(self, name: str) -> SplitRecord:
        """Return the record of a split; raises ArtifactError if the split does not exist."""
        record = self.manifest.split(name)
        if record is None:
            names = ", ".join(item.name for item in self.manifest.splits)
            raise ArtifactError(f"split is {name!r}; {str(self.folder)!r} has: {names}. Choose one of these.")
        return record

    def iter_batches(self, split: str, *, max_tokens: int = 1 << 22) -> Iterator[RowBatch]:
        """Yield the split's rows in order, in batches of bounded memory.

        Raises:
            ArtifactError: the split does not exist, or a shard cannot be read.
        """
        for shard in self.split(split).shards:
            yield from iter_row_groups(self.path_of(shard), shard.path, max_tokens=max_tokens)

    def row(self, split: str, index: int) -> PackedRow:
        """Return one pack by its 0-based position in the split.

        Raises:
            ArtifactError: the split or the pack does not exist, or its shard cannot be read.
        """
        record = self.manifest.split(split)
        num_rows = record.statistics.num_packs if record else 0
        if record is None or not 0 <= index < num_rows:
            choices = f"0 to {num_rows - 1}" if num_rows else f"none, there is no split {split!r}"
            raise ArtifactError(f"pack is {index}; allowed: {choices}. Choose another pack or split.")
        for shard in record.shards:
            if index < shard.num_rows:
                return read_shard_rows(self.path_of(shard), shard.path, [index])[index]
            index -= shard.num_rows
        raise ArtifactError(f"{str(self.folder)!r}: the manifest's shards have fewer packs than its statistics say.")
