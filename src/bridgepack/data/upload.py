"""Writes a finished artifact to an object store: verifies every file, and writes the manifest last."""

import base64
import errno
import hashlib
import json
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.output import ARTIFACT_ENTRIES
from bridgepack.data.reading.inputs import iter_blocks
from bridgepack.data.reading.remote import CloudFile, as_os_errors, checked_url, filesystem_of, scheme_of
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, DataError

_NUM_THREADS = 4
#: s3fs sends larger files in parts of this size; their ETags determine the ETag of the whole.
_PART_BYTES = 50 << 20
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """Result of an upload to `url`: `num_sent` of the artifact's files were sent; the others already existed."""

    url: str
    num_sent: int
    num_files: int
    num_bytes: int


def upload_place(url: str) -> str:
    """Return the URL for an artifact's copy, after checking before the build that it can be written there.

    Raises:
        ConfigError: the URL is invalid, or the package that writes to it is not installed.
        ArtifactError: the store does not answer, or other files are there.
    """
    place = checked_url(url, "--output").rstrip("/")
    try:
        foreign = sorted(
            name for name in _StoredObjects(place).entries if name.partition("/")[0] not in ARTIFACT_ENTRIES
        )
    except OSError as error:
        raise ArtifactError(
            f"--output is {place!r}; the object store refuses: {error.strerror}. Check the bucket, credentials, "
            "endpoint and permissions."
        ) from None
    if foreign:
        raise ArtifactError(
            f"--output is {place!r}, which has files that are not an artifact: {', '.join(foreign[:_MAX_NAMED])}. "
            "Choose another prefix."
        )
    return place


def refuse_replacing_at(url: str, fingerprint: str) -> None:
    """Check that a URL has no other artifact; an unreadable manifest or this fingerprint is fine.

    Raises:
        ArtifactError: it has another artifact.
    """
    try:
        entry = _StoredObjects(url).entries.get(MANIFEST_FILE)
        manifest = CloudFile(url=f"{url}/{MANIFEST_FILE}", num_bytes=int(entry["size"])) if entry else None
        actual = json.loads(b"".join(iter_blocks(manifest)))["fingerprint"] if manifest else fingerprint
    except (OSError, DataError, ValueError, KeyError, TypeError, RecursionError):
        return
    if actual != fingerprint:
        raise ArtifactError(
            f"--output is {url!r}, which holds another artifact: its fingerprint is {str(actual)[:12]}; this recipe "
            f"and its data give {fingerprint[:12]}. Choose another prefix, or add --replace (replace=True in Python)."
        )


def upload_artifact(folder: Path, url: str, progress: Progress) -> Upload:
    """Return the result of writing an artifact to a URL from `upload_place`; it is complete once the manifest exists.

    When replacing an artifact, its manifest is removed first, so that a mixture of files never counts as an artifact.

    Raises:
        ArtifactError: a file cannot be written, or differs from what was sent, or another build writes there, too.
    """
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    progress.start("Uploading", sum(sizes.values()), "files")
    num_sent = 0
    try:
        objects = _StoredObjects(url)
        manifest = files.pop(MANIFEST_FILE)
        if not objects.has(manifest, MANIFEST_FILE):
            objects.remove({MANIFEST_FILE})
        with ThreadPoolExecutor(max_workers=_NUM_THREADS) as threads:
            for name, was_sent in zip(files, threads.map(objects.send, files.values(), files), strict=True):
                num_sent += was_sent
                progress.advance(1, work=sizes[name])
        objects.remove(objects.entries.keys() - sizes.keys())
        objects.refuse_others()
        num_sent += objects.send(manifest, MANIFEST_FILE, is_new=True)
        progress.advance(1, work=sizes[MANIFEST_FILE])
        objects.refuse_others()
    except _OthersError as error:
        raise ArtifactError(
            f"{url} is written by another build, too: {error}. What is there may be of both; this artifact is complete "
            f"in {str(folder)!r}. Choose another prefix, or add --replace when the other build is done."
        ) from None
    except OSError as error:
        raise ArtifactError(
            f"{url} cannot be written: {error.strerror or error}. The artifact is complete in {str(folder)!r}; run "
            "the same command again to resume."
        ) from None
    progress.finish()
    return Upload(url=url, num_sent=num_sent, num_files=len(sizes), num_bytes=sum(sizes.values()))


class _OthersError(Exception):
    """Objects that another build has written since ours were; says which."""


class _StoredObjects:
    """The objects below a URL with the store's facts about them; turns errors of the store into OSErrors."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem, folder = filesystem_of(url)
        self._prefix = f"{folder}/"
        try:
            with as_os_errors(url):
                entries = self._filesystem.find(folder, detail=True)
        except FileNotFoundError:
            self._refuse_missing_bucket(folder)
            entries = {}
        self.entries: dict[str, Mapping[str, Any]] = {
            name.removeprefix(self._prefix): entry
            for name, entry in entries.items()
            if entry["type"] == "file" and name.startswith(self._prefix) and not name.endswith("/")
        }

    def _refuse_missing_bucket(self, folder: str) -> None:
        """Refuse a bucket that does not exist; below one that does, nothing need exist."""
        bucket = folder.lstrip("/").partition("/")[0]
        with as_os_errors(self._url):
            has_bucket = self._filesystem.exists(bucket)
        if not has_bucket:
            raise OSError(errno.ENOENT, f"there is no bucket {bucket!r}", self._url)

    def refuse_others(self) -> None:
        """Check that the store holds what this build has found or written there, and nothing else."""
        names = {name: _version_of(entry) for name, entry in self.entries.items()}
        present = {name: _version_of(entry) for name, entry in _StoredObjects(self._url).entries.items()}
        if changes := sorted(name for name, _ in names.items() ^ present.items()):
            raise _OthersError(f"{', '.join(list(dict.fromkeys(changes))[:_MAX_NAMED])} changed meanwhile")

    def send(self, path: Path, name: str, *, is_new: bool = False) -> bool:
        """Write a file unless it already exists, and verify it; return whether it was sent.

        `is_new`: nobody else may write it meanwhile; stores without conditional writes ignore that.
        """
        if self.has(path, name):
            return False
        is_written = is_new and scheme_of(self._url) == "s3" and self._create(path, name)
        with as_os_errors(f"{self._url}/{name}"):
            if not is_written:
                self._filesystem.put_file(str(path), self._prefix + name)
            self.entries[name] = self._filesystem.info(self._prefix + name)
        if not self.has(path, name):
            raise OSError(f"{name} differs from what was sent")
        return True

    def _create(self, path: Path, name: str) -> bool:
        """Write a file where none is; return whether the store can do that."""
        try:
            self._filesystem.put_file(str(path), self._prefix + name, mode="create")
        except OSError as error:
            # s3fs/errors.py translates HTTP 412, which names no header in some stores, to one of these.
            if isinstance(error, FileExistsError) or error.errno == errno.EINVAL:
                raise _OthersError(f"{name} was written meanwhile") from None
            return False  # e.g. a store without conditional writes
        return True

    def has(self, path: Path, name: str) -> bool:
        """Return whether an object equals a file, by size and hash, or by reading it if the store has no hash."""
        entry = self.entries.get(name)
        if entry is None or int(entry["size"]) != path.stat().st_size:
            return False
        hashes = {str(entry.get(key, "")).strip('"').lower() for key in ("ETag", "etag")}
        with suppress(ValueError):  # Google's store has an MD5 in base 64
            hashes.add(base64.b64decode(str(entry.get("md5Hash", ""))).hex())
        if not hashes.isdisjoint(_hashes(path)):
            return True
        remote_file = CloudFile(url=f"{self._url}/{name}", num_bytes=int(entry["size"]))
        return all(
            block == counterpart for block, counterpart in zip(iter_blocks(path), iter_blocks(remote_file), strict=True)
        )

    def remove(self, names: Set[str]) -> None:
        """Remove the named objects that exist."""
        with as_os_errors(self._url):
            for name in sorted(self.entries.keys() & names):
                self._filesystem.rm_file(self._prefix + name)
                del self.entries[name]


def _version_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a store says of an object's content; what it does not say is empty."""
    return tuple(str(entry.get(key, "")).strip('"') for key in ("size", "ETag", "etag", "md5Hash", "generation"))


def _hashes(path: Path) -> set[str]:
    """Return the ETags that S3 gives a file when it is sent whole or in parts."""
    entire, parts = hashlib.md5(usedforsecurity=False), []
    with path.open("rb") as stream:
        while part := stream.read(_PART_BYTES):
            entire.update(part)
            parts.append(hashlib.md5(part, usedforsecurity=False).digest())
    of_parts = hashlib.md5(b"".join(parts), usedforsecurity=False)
    return {entire.hexdigest(), f"{of_parts.hexdigest()}-{len(parts)}"}
