"""Writes a finished artifact to an object store: every file whole and verified, the manifest last."""

import base64
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
from bridgepack.data.reading.remote import CloudFile, as_os_errors, checked_url, filesystem_of
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, DataError

_NUM_THREADS = 4
#: s3fs sends larger files in parts of this size; the ETag of the whole follows from theirs.
_PART_BYTES = 50 << 20
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """What became of an upload: of all files of the artifact at `url`, `num_sent` were sent; the others were there."""

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
    try:
        foreign = sorted(name for name in _Place(place).found if name.partition("/")[0] not in ARTIFACT_ENTRIES)
    except OSError as error:
        raise ArtifactError(
            f"--output is {place!r}; the object store refuses: {error.strerror}. Check the bucket, the credentials, "
            "the endpoint and the rights."
        ) from None
    if foreign:
        raise ArtifactError(
            f"--output is {place!r}, where something else than an artifact is: {', '.join(foreign[:_MAX_NAMED])}. "
            "Choose another prefix."
        )
    return place


def refuse_replacing_at(url: str, fingerprint: str) -> None:
    """Accept a URL where no artifact is, or one of this fingerprint, or a manifest that is none.

    Raises:
        ArtifactError: another artifact is there.
    """
    try:
        entry = _Place(url).found.get(MANIFEST_FILE)
        there = CloudFile(url=f"{url}/{MANIFEST_FILE}", num_bytes=int(entry["size"])) if entry else None
        found = json.loads(b"".join(iter_blocks(there)))["fingerprint"] if there else fingerprint
    except (OSError, DataError, ValueError, KeyError, TypeError):
        return
    if found != fingerprint:
        raise ArtifactError(
            f"--output is {url!r}, which holds another artifact: its fingerprint is {str(found)[:12]}, and this recipe "
            f"and its data give {fingerprint[:12]}. Choose another prefix, or add --replace (replace=True in Python)."
        )


def upload_artifact(folder: Path, url: str, progress: Progress) -> Upload:
    """Write an artifact below a URL, as `upload_place` gave it, where it is whole once its manifest is there.

    An artifact that is there is replaced: first its manifest goes, so that nobody takes a mixture for an artifact.

    Raises:
        ArtifactError: when something cannot be written, or is not what was sent.
    """
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    progress.start("Uploading", sum(sizes.values()), "files")
    num_sent = 0
    try:
        place = _Place(url)
        manifest = files.pop(MANIFEST_FILE)
        if not place.has(manifest, MANIFEST_FILE):
            place.remove({MANIFEST_FILE})
        with ThreadPoolExecutor(max_workers=_NUM_THREADS) as threads:
            for name, was_sent in zip(files, threads.map(place.send, files.values(), files), strict=True):
                num_sent += was_sent
                progress.advance(1, work=sizes[name])
        place.remove(place.found.keys() - sizes.keys())
        num_sent += place.send(manifest, MANIFEST_FILE)
        progress.advance(1, work=sizes[MANIFEST_FILE])
    except OSError as error:
        raise ArtifactError(
            f"{url} cannot be written: {error.strerror or error}. The artifact is whole in {str(folder)!r}; run the "
            "same command again to go on."
        ) from None
    progress.finish()
    return Upload(url=url, num_sent=num_sent, num_files=len(sizes), num_bytes=sum(sizes.values()))


class _Place:
    """The objects below a URL, and what the store says of each; every error of the store is an OSError."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem, folder = filesystem_of(url)
        self._prefix = f"{folder}/"
        try:
            with as_os_errors(url):
                found = self._filesystem.find(folder, detail=True)
        except FileNotFoundError:
            found = {}
        self.found: dict[str, Mapping[str, Any]] = {
            name.removeprefix(self._prefix): entry
            for name, entry in found.items()
            if entry["type"] == "file" and name.startswith(self._prefix) and not name.endswith("/")
        }

    def send(self, path: Path, name: str) -> bool:
        """Write a file and compare what is there with it; say whether it was sent, or there already."""
        if self.has(path, name):
            return False
        with as_os_errors(f"{self._url}/{name}"):
            self._filesystem.put_file(str(path), self._prefix + name)
            self.found[name] = self._filesystem.info(self._prefix + name)
        if not self.has(path, name):
            raise OSError(f"{name} is not what was sent")
        return True

    def has(self, path: Path, name: str) -> bool:
        """Say whether an object is the same as a file: by its size and its hash, or by reading it where it has none."""
        entry = self.found.get(name)
        if entry is None or int(entry["size"]) != path.stat().st_size:
            return False
        stated = {str(entry.get(key, "")).strip('"').lower() for key in ("ETag", "etag")}
        with suppress(ValueError):  # Google's store tells an MD5 in base 64
            stated.add(base64.b64decode(str(entry.get("md5Hash", ""))).hex())
        if not stated.isdisjoint(_hashes(path)):
            return True
        there = CloudFile(url=f"{self._url}/{name}", num_bytes=int(entry["size"]))
        return all(one == other for one, other in zip(iter_blocks(path), iter_blocks(there), strict=True))

    def remove(self, names: Set[str]) -> None:
        """Remove those of some objects that are there."""
        with as_os_errors(self._url):
            for name in sorted(self.found.keys() & names):
                self._filesystem.rm_file(self._prefix + name)
                del self.found[name]


def _hashes(path: Path) -> set[str]:
    """Return the ETags that S3 gives a file that is sent whole, and one that is sent in parts."""
    whole, parts = hashlib.md5(usedforsecurity=False), []
    with path.open("rb") as stream:
        while part := stream.read(_PART_BYTES):
            whole.update(part)
            parts.append(hashlib.md5(part, usedforsecurity=False).digest())
    joined = hashlib.md5(b"".join(parts), usedforsecurity=False)
    return {whole.hexdigest(), f"{joined.hexdigest()}-{len(parts)}"}
