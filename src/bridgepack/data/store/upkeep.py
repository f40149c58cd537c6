"""What lies in a token store, what of it may go, and whether it is whole."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bridgepack.data.store.records import iter_build_records
from bridgepack.data.store.store import (
    IDENTITY_FILE,
    INPUTS,
    TOKEN_SUFFIX,
    TOKENIZATIONS,
    TokenStore,
    emptied_store,
    existing_store,
)
from bridgepack.data.store.token_file import check_token_file, count_tokens
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.workers.pool import plain_runner
from bridgepack.errors import StoreError

#: Why a file goes.
UNUSED, OLD, OVER_SIZE, UNFINISHED = "unused", "old", "over_size", "unfinished"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizationEntry:
    """One tokenisation of a store.

    Attributes:
        key: its name in the store.
        tokenizer: what the first recipe called its tokenizer.
        preprocessing: kind of preprocessing.
        num_ranges: token files.
        num_sequences: sequences in them.
        num_tokens: stored tokens in them.
        num_bytes: size of the files.
        last_used_s: seconds since the epoch when one of them was last used.
        num_broken: files that are not whole, as far as their footers tell.
    """

    key: str
    tokenizer: str
    preprocessing: str
    num_ranges: int
    num_sequences: int
    num_tokens: int
    num_bytes: int
    last_used_s: float
    num_broken: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactEntry:
    """One artifact that was made from a store.

    Attributes:
        output: where it was built.
        fingerprint: of the artifact.
        is_there: it still is.
        num_ranges: token files that it was made of.
        num_missing: of these, files that are not in the store any more.
    """

    output: str
    fingerprint: str
    is_there: bool
    num_ranges: int
    num_missing: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreListing:
    """What lies in a store.

    Attributes:
        folder: of the store.
        tokenizations: largest first.
        artifacts: newest first.
    """

    folder: str
    tokenizations: tuple[TokenizationEntry, ...]
    artifacts: tuple[ArtifactEntry, ...]

    def summary(self) -> dict[str, Any]:
        """Return the listing as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneRules:
    """What may go.

    Attributes:
        is_unused: files that no artifact was made of which is still there.
        older_than_s: files that were not used for so many seconds.
        max_bytes: those not used for longest, until the rest is not larger.
    """

    is_unused: bool = False
    older_than_s: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What went, or would go.

    Attributes:
        folder: of the store.
        removed: (file, bytes, why).
        num_bytes_kept: of token files that stay.
        is_dry_run: nothing was removed.
    """

    folder: str
    removed: tuple[tuple[str, int, str], ...]
    num_bytes_kept: int
    is_dry_run: bool

    @property
    def num_bytes(self) -> int:
        """Bytes that went."""
        return sum(size for _, size, _ in self.removed)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {**asdict(self), "num_bytes": self.num_bytes}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What a look at every byte found.

    Attributes:
        folder: of the store.
        num_files: token files looked at.
        broken: (file, what is wrong).
        were_removed: they were taken away.
    """

    folder: str
    num_files: int
    broken: tuple[tuple[str, str], ...]
    were_removed: bool

    def summary(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return asdict(self)


def list_store(folder: Path) -> StoreListing:
    """Return what lies in a store.

    Raises:
        StoreError: when the folder is no store.
    """
    store = existing_store(folder)
    entries = [_entry(path) for path in sorted((store.folder / TOKENIZATIONS).glob("*")) if path.is_dir()]
    artifacts = []
    for record in iter_build_records(store):
        files = [store.path_of(item.token_file) for ranges in record.ranges.values() for item in ranges]
        artifacts.append(
            ArtifactEntry(
                output=str(record.output),
                fingerprint=record.fingerprint,
                is_there=record.is_there,
                num_ranges=len(files),
                num_missing=sum(not path.is_file() for path in files),
            )
        )
    return StoreListing(
        folder=str(store.folder),
        tokenizations=tuple(sorted(entries, key=lambda entry: (-entry.num_bytes, entry.key))),
        artifacts=tuple(artifacts),
    )


def prune_store(folder: Path, rules: PruneRules, *, is_dry_run: bool = False) -> Pruned:
    """Remove token files by some rules, and what builds that were ended left; return what went.

    Raises:
        StoreError: when the folder is no store, or a build is using it.
    """
    with ExitStack() as stack:
        store = existing_store(folder) if is_dry_run else stack.enter_context(emptied_store(folder))
        files = {path: path.stat() for path in _token_files(store)}
        chosen = _chosen(store, files, rules)
        unfinished = [] if is_dry_run else store.unfinished()
        removed = [(str(path), files[path].st_size, why) for path, why in sorted(chosen.items())]
        removed += [(str(path), path.stat().st_size, UNFINISHED) for path in unfinished]
        if not is_dry_run:
            for path in [*chosen, *unfinished]:
                path.unlink(missing_ok=True)
            _tidy(store, rules)
        kept = sum(status.st_size for path, status in files.items() if path not in chosen)
        return Pruned(folder=str(store.folder), removed=tuple(removed), num_bytes_kept=kept, is_dry_run=is_dry_run)


def verify_store(
    folder: Path, *, removes: bool = False, num_workers: int = 1, progress: Progress | None = None
) -> Verified:
    """Compare every token file with its checksum; remove broken ones only where that is asked for.

    Raises:
        StoreError: when the folder is no store, or files are to be removed and a build is using it.
    """
    shown = progress or SilentProgress()
    with ExitStack() as stack:
        store = stack.enter_context(emptied_store(folder)) if removes else existing_store(folder)
        files = sorted(_token_files(store))
        shown.start("Verifying", sum(path.stat().st_size for path in files), "files")
        broken = []
        runner = stack.enter_context(plain_runner(num_workers))
        for path, reason in zip(files, runner.run(what_is_wrong, files), strict=True):
            if reason:
                broken.append((str(path), reason))
                if removes:
                    path.unlink(missing_ok=True)
            shown.advance(1, work=path.stat().st_size if path.exists() else 0)
        shown.finish()
        return Verified(
            folder=str(store.folder), num_files=len(files), broken=tuple(broken), were_removed=removes and bool(broken)
        )


def what_is_wrong(path: Path) -> str:
    """Return why a token file is broken; empty where it is not."""
    try:
        check_token_file(path)
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def _entry(folder: Path) -> TokenizationEntry:
    try:
        content = json.loads((folder / IDENTITY_FILE).read_text(encoding="utf-8"))
        name, kind = str(content["tokenizer"]), str(content["depends_on"]["settings"]["preprocessing.kind"])
    except (OSError, ValueError, KeyError, TypeError):
        name = kind = "?"
    num_sequences = num_tokens = num_bytes = num_broken = num_ranges = 0
    last_used_s = 0.0
    for path in folder.glob(f"*/*{TOKEN_SUFFIX}"):
        status = path.stat()
        num_ranges += 1
        num_bytes += status.st_size
        last_used_s = max(last_used_s, status.st_mtime)
        try:
            sequences, tokens = count_tokens(path)
        except StoreError:
            num_broken += 1
            continue
        num_sequences += sequences
        num_tokens += tokens
    return TokenizationEntry(
        key=folder.name,
        tokenizer=name,
        preprocessing=kind,
        num_ranges=num_ranges,
        num_sequences=num_sequences,
        num_tokens=num_tokens,
        num_bytes=num_bytes,
        last_used_s=last_used_s,
        num_broken=num_broken,
    )


def _token_files(store: TokenStore) -> Iterator[Path]:
    yield from (store.folder / TOKENIZATIONS).glob(f"*/*/*{TOKEN_SUFFIX}")


def _chosen(store: TokenStore, files: dict[Path, os.stat_result], rules: PruneRules) -> dict[Path, str]:
    """Return file -> why it goes."""
    chosen: dict[Path, str] = {}
    if rules.is_unused:
        used = {
            store.path_of(item.token_file)
            for record in iter_build_records(store)
            if record.is_there
            for ranges in record.ranges.values()
            for item in ranges
        }
        chosen.update({path: UNUSED for path in files if path not in used})
    if rules.older_than_s is not None:
        oldest_s = time.time() - rules.older_than_s
        chosen.update({path: OLD for path, status in files.items() if status.st_mtime < oldest_s})
    if rules.max_bytes is not None:
        rest = [path for path in files if path not in chosen]
        size = sum(files[path].st_size for path in rest)
        for path in sorted(rest, key=lambda path: (files[path].st_mtime_ns, path)):
            if size <= rules.max_bytes:
                break
            chosen[path] = OVER_SIZE
            size -= files[path].st_size
    return chosen


def _tidy(store: TokenStore, rules: PruneRules) -> None:
    """Remove folders without token files, and records of artifacts that are gone."""
    for folder in (store.folder / TOKENIZATIONS).glob("*"):
        if not any(folder.glob(f"*/*{TOKEN_SUFFIX}")):
            shutil.rmtree(folder)
    if rules.is_unused:
        for record in iter_build_records(store):
            if not record.is_there:
                record.path.unlink()
    if rules.older_than_s is not None:
        oldest_s = time.time() - rules.older_than_s
        for path in (store.folder / INPUTS).glob("*.json"):
            if path.stat().st_mtime < oldest_s:
                path.unlink()
