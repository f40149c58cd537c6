"""Lists, prunes and verifies a token store."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.files import remove_entry
from bridgepack.data.store.builds import BuildRecord, damaged_records, iter_build_records, record_files
from bridgepack.data.store.store import (
    IDENTITY_FILE,
    ROWS,
    TOKEN_SUFFIX,
    TOKENIZATIONS,
    TokenStore,
    check_stored_tokens,
    existing_store,
    store_at,
)
from bridgepack.data.store.token_file import token_arrays
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.workers.pool import plain_runner
from bridgepack.errors import StoreError
from bridgepack.records.results import Result
from bridgepack.records.words import count_text
from bridgepack.user_files import MAX_LARGE_BYTES, read_text

#: Reasons for removing a file.
UNUSED, OLD, OVER_SIZE, UNFINISHED = "unused", "old", "over_size", "unfinished"
#: Folder of earlier versions' notes about compressed inputs.
_OLD_INPUTS = "inputs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizationEntry:
    """One tokenisation of a store."""

    key: str  #: name of the tokenisation in the store
    tokenizer: str  #: name of the tokenizer in the first recipe
    preprocessing: str  #: kind of preprocessing
    last_used_s: float  #: seconds since the epoch when one of its files was last used
    num_ranges: int  #: token files
    num_sequences: int
    num_tokens: int  #: stored tokens in them
    num_bytes: int
    num_broken: int  #: incomplete files, according to their footers


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactEntry:
    """One artifact made from a store: its folder, whether it still exists, and its number of token files."""

    output: str
    fingerprint: str
    is_there: bool
    num_ranges: int
    num_missing: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreListing(Result):
    """Contents of a store; the largest tokenisation and the newest artifact come first."""

    TABLE: ClassVar = "tokenizations"

    folder: str
    tokenizations: tuple[TokenizationEntry, ...]
    artifacts: tuple[ArtifactEntry, ...]
    num_row_files: int  #: files of rows that were given in memory
    num_row_bytes: int

    def headline(self) -> str:
        """Return what came out, in one line."""
        tokens = count_text(len(self.tokenizations), "tokenisation")
        return f"{self.folder}: {tokens}, {count_text(len(self.artifacts), 'artifact')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned(Result):
    """(file, bytes, reason) of each file removed or to be removed, and the size of the remaining token files."""

    folder: str
    removed: tuple[tuple[str, int, str], ...]
    num_bytes: int
    num_bytes_kept: int
    is_dry_run: bool

    def headline(self) -> str:
        """Return what came out, in one line."""
        verb = "would be removed" if self.is_dry_run else "removed"
        return f"{self.folder}: {count_text(len(self.removed), 'file')} {verb}, {self.num_bytes:,} bytes"

    def table(self) -> list[dict[str, Any]]:
        """Return the files."""
        return [{"file": file, "num_bytes": num_bytes, "reason": reason} for file, num_bytes, reason in self.removed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified(Result):
    """Result of a full verification: (file, problem) of each broken file."""

    folder: str
    num_files: int
    broken: tuple[tuple[str, str], ...]
    were_removed: bool

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.folder}: {count_text(self.num_files, 'file')}, {len(self.broken):,} broken"

    def table(self) -> list[dict[str, Any]]:
        """Return the broken files."""
        return [{"file": file, "problem": problem} for file, problem in self.broken]


def list_store(folder: Path) -> StoreListing:
    """Return the contents of a store; raises StoreError if the folder is not a store."""
    store = existing_store(folder)
    entries = [_entry(path) for path in (store.folder / TOKENIZATIONS).glob("*") if path.is_dir()]
    records = [(record, _files_of(store, record)) for record in iter_build_records(store)]
    row_sizes = [path.stat().st_size for path in _row_files(store)]
    return StoreListing(
        folder=str(store.folder),
        num_row_files=len(row_sizes),
        num_row_bytes=sum(row_sizes),
        tokenizations=tuple(sorted(entries, key=lambda entry: (-entry.num_bytes, entry.key))),
        artifacts=tuple(
            ArtifactEntry(
                output=str(record.output),
                fingerprint=record.fingerprint,
                is_there=record.is_there,
                num_ranges=len(files),
                num_missing=sum(not path.is_file() for path in files),
            )
            for record, files in records
        ),
    )


def prune_store(
    folder: Path,
    *,
    is_unused: bool = False,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
    is_dry_run: bool = False,
) -> Pruned:
    """Return the removed files: token files by the given rules, and leftovers of interrupted builds.

    `is_unused` removes files that no existing artifact uses, files of rows included; `max_bytes` the least recently
    used files, until the rest fits.

    Raises:
        StoreError: the folder is not a store, a build is using it, or with `is_unused` a record of an artifact was
            changed, so that it is unknown which files that artifact uses.
    """
    oldest_s = float("-inf") if older_than_s is None else time.time() - older_than_s
    with store_at(folder, is_emptied=not is_dry_run) as store:
        files = {path: path.stat() for path in _token_files(store) if path.is_file()}
        unused_files = _unused_files(store, files) if is_unused else []
        files |= {path: path.stat() for path in unused_files}
        reasons = dict.fromkeys(unused_files, UNUSED)
        reasons |= {path: OLD for path, status in files.items() if status.st_mtime < oldest_s}
        num_bytes_kept = sum(status.st_size for path, status in files.items() if path not in reasons)
        for path in sorted(files.keys() - reasons, key=lambda path: (files[path].st_mtime_ns, path)):
            if max_bytes is None or num_bytes_kept <= max_bytes:
                break
            reasons[path] = OVER_SIZE
            num_bytes_kept -= files[path].st_size
        removed_files = [(str(path), files[path].st_size, why) for path, why in sorted(reasons.items())]
        if not is_dry_run:
            leftovers = store.unfinished_files()
            removed_files += [(str(path), path.stat().st_size, UNFINISHED) for path in leftovers]
            records_of_none = [record.path for record in iter_build_records(store) if is_unused and not record.is_there]
            for path in [*reasons, *leftovers, *records_of_none]:
                path.unlink(missing_ok=True)
            for path in [*(store.folder / TOKENIZATIONS).glob("*"), *store.folder.glob(_OLD_INPUTS)]:
                if path.is_dir() and not any(path.glob(f"*/*{TOKEN_SUFFIX}")):
                    remove_entry(path)
        return Pruned(
            folder=str(store.folder),
            removed=tuple(removed_files),
            num_bytes=sum(size for _, size, _ in removed_files),
            num_bytes_kept=num_bytes_kept,
            is_dry_run=is_dry_run,
        )


def verify_store(
    folder: Path, *, removes: bool = False, num_workers: int = 1, progress: Progress | None = None
) -> Verified:
    """Return the token files and records that are broken by checksum or name, after removing them if requested.

    Raises:
        StoreError: the folder is not a store, or files are to be removed but a build is using it.
    """
    bars = progress or SilentProgress()
    with store_at(folder, is_emptied=removes) as store, plain_runner(num_workers) as runner:
        files = sorted(_token_files(store))
        num_files = len(files) + len(record_files(store))
        sizes = [path.stat().st_size for path in files]
        bars.start("Verifying", sum(sizes), "files")
        faults = []
        for path, size, reason in zip(files, sizes, runner.run(_what_is_wrong, files), strict=True):
            if reason:
                faults.append((str(path), reason))
                if removes:
                    remove_entry(path)
            bars.advance(1, work=size)
        bars.finish()
        for path, reason in damaged_records(store).items():
            faults.append((str(path), reason))
            if removes:
                remove_entry(path)
        were_removed = removes and bool(faults)
        return Verified(folder=str(store.folder), num_files=num_files, broken=tuple(faults), were_removed=were_removed)


def _what_is_wrong(path: Path) -> str:
    """Return why a token file is broken; empty if it is not."""
    try:
        check_stored_tokens(path)
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def _entry(folder: Path) -> TokenizationEntry:
    try:
        content = json.loads(read_text(folder / IDENTITY_FILE))
        name, kind = str(content["tokenizer"]), str(content["depends_on"]["settings"]["preprocessing.kind"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        name = kind = "?"
    counts: Counter[str] = Counter()
    last_used_s = 0.0
    for path in folder.glob(f"*/*{TOKEN_SUFFIX}"):
        status = path.stat()
        last_used_s = max(last_used_s, status.st_mtime)
        counts.update(ranges=1, bytes=status.st_size)
        try:
            arrays = token_arrays(path)
            counts.update(sequences=len(arrays.offsets) - 1, tokens=len(arrays.input_ids))
        except StoreError:
            counts.update(broken=1)
    return TokenizationEntry(
        key=folder.name,
        tokenizer=name,
        preprocessing=kind,
        last_used_s=last_used_s,
        **{f"num_{unit}": counts[unit] for unit in ("ranges", "sequences", "tokens", "bytes", "broken")},
    )


def _token_files(store: TokenStore) -> list[Path]:
    return list((store.folder / TOKENIZATIONS).glob(f"*/*/*{TOKEN_SUFFIX}"))


def _files_of(store: TokenStore, record: BuildRecord) -> list[Path]:
    return [store.path_of(item.token_file) for ranges in record.ranges.values() for item in ranges]


def _unused_files(store: TokenStore, files: Iterable[Path]) -> list[Path]:
    """Return the token files that no existing artifact uses, and the files of rows that none names as a source.

    Raises:
        StoreError: a record was changed.
    """
    for problem in damaged_records(store).values():
        raise StoreError(problem)
    records = [record for record in iter_build_records(store) if record.is_there]
    used_files = {path for record in records for path in _files_of(store, record)}
    manifests = [read_text(record.output / MANIFEST_FILE, max_bytes=MAX_LARGE_BYTES) for record in records]
    rows = [path for path in _row_files(store) if not any(path.name in manifest for manifest in manifests)]
    return [*(path for path in files if path not in used_files), *rows]


def _row_files(store: TokenStore) -> list[Path]:
    return [path for kind in ("*.parquet", "*.jsonl") for path in (store.folder / ROWS).glob(kind)]
