"""Writes a finished artifact to an object store: every file whole and verified, the manifest last."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.output import ARTIFACT_ENTRIES
from bridgepack.data.reading.inputs import iter_blocks
from bridgepack.data.reading.remote import as_os_errors, checked_url, filesystem_of, read_part
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError

_NUM_THREADS = 4
#: s3fs sends larger files in parts of this size; the ETag of the whole follows from theirs.
_PART_BYTES = 50 << 20
_READ_BYTES = 1 << 24
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """What became of an upload.

    Attributes:
        url: of the artifact.
        num_sent: files that were sent; the others were there.
        num_files: files of the artifact.
        num_bytes: of all of them.
    """

    url: str
    num_sent: int
    num_files: int
    num_bytes: int


def upload_place(url: str) -> str:
    """Return where an artifact can go; it is looked at before anything is built.

    Raises:
        ConfigError: when the URL is none, or nothing is installed that writes there.
        ArtifactError: when the store does not answer, or something else is there.
    """
    place = checked_url(url, "--output").rstrip("/")
    _Place(place).refuse_foreign_objects()
    return place


def upload_artifact(folder: Path, url: str, progress: Progress) -> Upload:
    """Write an artifact below a URL, where it is whole once its manifest is there.

    An artifact that is there is replaced: first its manifest goes, so that nobody takes a mixture for an artifact.

    Args:
        folder: of the artifact; it stays.
        url: as `upload_place` gave it.
        progress: told how far it is.

    Raises:
        ArtifactError: when something cannot be written, or is not what was sent.
    """
    place = _Place(url)
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    total = sum(path.stat().st_size for path in files.values())
    progress.start("Uploading", total, "files")
    try:
        found = place.objects()
        manifest = files.pop(MANIFEST_FILE)
        if not place.has(manifest, MANIFEST_FILE, found):
            place.remove([name for name in found if name == MANIFEST_FILE])
        num_sent = 0
        with ThreadPoolExecutor(max_workers=_NUM_THREADS) as threads:
            for path, was_sent in threads.map(lambda item: place.send(item[1], item[0], found), files.items()):
                num_sent += was_sent
                progress.advance(1, work=path.stat().st_size)
        place.remove([name for name in found if name not in {*files, MANIFEST_FILE}])
        _, was_sent = place.send(manifest, MANIFEST_FILE, found)
        progress.advance(1, work=manifest.stat().st_size)
    except OSError as error:
        raise ArtifactError(
            f"{url} cannot be written: {error.strerror or error}. The artifact is whole in {str(folder)!r}; run the "
            "same command again to go on."
        ) from None
    progress.finish()
    return Upload(url=url, num_sent=num_sent + was_sent, num_files=len(files) + 1, num_bytes=total)


class _Place:
    """The objects below a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem, self._prefix = filesystem_of(url)

    def objects(self) -> dict[str, Mapping[str, Any]]:
        """Return name below the URL -> what the store says of the object."""
        with as_os_errors(self._url):
            try:
                found = self._filesystem.find(self._prefix, detail=True)
            except FileNotFoundError:
                return {}
        prefix = f"{self._prefix}/"
        return {
            name.removeprefix(prefix): entry
            for name, entry in found.items()
            if entry["type"] == "file" and name.startswith(prefix) and not name.endswith("/")
        }

    def refuse_foreign_objects(self) -> None:
        """Make sure that an artifact is there, whole or not, or nothing.

        Raises:
            ArtifactError: when something else is, or the store does not answer.
        """
        try:
            foreign = sorted(name for name in self.objects() if name.partition("/")[0] not in ARTIFACT_ENTRIES)
        except OSError as error:
            raise ArtifactError(
                f"--output is {self._url!r}; the object store refuses: {error.strerror}. Check the bucket, the "
                "credentials, the endpoint and the rights."
            ) from None
        if foreign:
            raise ArtifactError(
                f"--output is {self._url!r}, where something else than an artifact is: "
                f"{', '.join(foreign[:_MAX_NAMED])}. Choose another prefix."
            )

    def send(self, path: Path, name: str, found: Mapping[str, Mapping[str, Any]]) -> tuple[Path, bool]:
        """Write a file and compare what is there with it; say whether it was sent, or there already.

        Raises:
            OSError: when the store does not take it, or has other bytes afterwards.
        """
        if self.has(path, name, found):
            return path, False
        target = f"{self._prefix}/{name}"
        with as_os_errors(f"{self._url}/{name}"):
            self._filesystem.put_file(str(path), target)
            entry = self._filesystem.info(target)
        if not self.has(path, name, {name: entry}):
            raise OSError(f"{name} is not what was sent")
        return path, True

    def has(self, path: Path, name: str, found: Mapping[str, Mapping[str, Any]]) -> bool:
        """Say whether an object is the same as a file: by its size and its hash, or by reading it where it has none."""
        entry = found.get(name)
        if entry is None or int(entry["size"]) != path.stat().st_size:
            return False
        stated = {str(entry.get(key, "")).strip('"').lower() for key in ("ETag", "etag")} | {_as_hex(entry)}
        return not stated.isdisjoint(_hashes(path)) or self._is_same(path, f"{self._prefix}/{name}")

    def remove(self, names: list[str]) -> None:
        """Remove objects."""
        with as_os_errors(self._url):
            for name in names:
                self._filesystem.rm_file(f"{self._prefix}/{name}")

    def _is_same(self, path: Path, target: str) -> bool:
        size = path.stat().st_size
        with path.open("rb") as stream:
            for start in range(0, size, _READ_BYTES):
                with as_os_errors(self._url):
                    content = read_part(self._filesystem, target, start, min(start + _READ_BYTES, size))
                if content != stream.read(_READ_BYTES):
                    return False
        return True


def _as_hex(entry: Mapping[str, Any]) -> str:
    """Return the MD5 that Google's store tells, as S3 does."""
    try:
        return base64.b64decode(str(entry.get("md5Hash", ""))).hex() or "none"
    except ValueError:
        return "none"


def _hashes(path: Path) -> set[str]:
    """Return the ETags that S3 gives a file that is sent whole, and one that is sent in parts."""
    whole = hashlib.md5(usedforsecurity=False)
    parts = [hashlib.md5(usedforsecurity=False)]
    room = _PART_BYTES
    for block in iter_blocks(path):
        whole.update(block)
        if not room:
            parts.append(hashlib.md5(usedforsecurity=False))
            room = _PART_BYTES
        parts[-1].update(block[:room])
        if len(block) > room:
            parts.append(hashlib.md5(block[room:], usedforsecurity=False))
            room += _PART_BYTES
        room -= len(block)
    joined = hashlib.md5(b"".join(part.digest() for part in parts), usedforsecurity=False)
    return {whole.hexdigest(), f"{joined.hexdigest()}-{len(parts)}"}
