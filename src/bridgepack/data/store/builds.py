"""Which token files each artifact was made from: the records in a store, with their checksums."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.files import make_folders, write_text
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.store.store import BUILDS, TokenStore
from bridgepack.errors import StoreError
from bridgepack.user_files import MAX_LARGE_BYTES, read_text, real_path

#: Characters of an artifact's fingerprint in its record's name.
_NAME_CHARACTERS = 16
_CHECKSUM = "sha256"


class RangeRecord(NamedTuple):
    """One range of an artifact's inputs."""

    token_file: str  #: name of the token file in the store
    file_index: int  #: index of its file in the split's list of inputs
    first_row: int  #: 1-based number of its first row


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """The token files that an artifact was made from."""

    fingerprint: str
    output: Path  #: folder that it was built in
    ranges: Mapping[str, Sequence[RangeRecord]]  #: split -> ranges of its files, in order
    path: Path  #: file of the record
    is_checked: bool  #: the record has a checksum, which earlier versions did not write

    @property
    def is_there(self) -> bool:
        """The artifact still exists where it was built."""
        try:
            content = json.loads(read_text(self.output / MANIFEST_FILE, max_bytes=MAX_LARGE_BYTES))
            return bool(content["fingerprint"] == self.fingerprint)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False


def write_build_record(
    store: TokenStore, output: Path, fingerprint: str, results: Mapping[str, Sequence[RangeResult]]
) -> None:
    """Record which token files an artifact was made from."""
    place = real_path(output)
    mark = hashlib.sha256(str(place).encode(errors="surrogateescape")).hexdigest()[:8]
    path = store.folder / BUILDS / f"{fingerprint[:_NAME_CHARACTERS]}-{mark}.json"
    content = {
        "fingerprint": fingerprint,
        "output": str(place),
        "ranges": {
            source: [
                [str(item.place.token_file.relative_to(store.folder)), item.place.file_index, item.place.first_row]
                for item in ranges
            ]
            for source, ranges in results.items()
        },
    }
    make_folders(path.parent)
    write_text(path, json.dumps({**content, _CHECKSUM: _checksum(content)}) + "\n", is_shared=True)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def iter_build_records(store: TokenStore) -> Iterator[BuildRecord]:
    """Yield the records of a store, newest first; skips those of `damaged_records`."""
    for path in record_files(store):
        with suppress(StoreError):
            yield _read_record(path)


def damaged_records(store: TokenStore) -> dict[Path, str]:
    """Return file -> problem, for each record of a store that was changed or cannot be read."""
    problems = {}
    for path in record_files(store):
        try:
            _read_record(path)
        except StoreError as error:
            problems[path] = str(error)
    return problems


def find_build_record(store: TokenStore, fingerprint: str) -> BuildRecord | None:
    """Return the newest record of an artifact, wherever it was built; None if there is none.

    Raises:
        StoreError: its records were changed, cannot be read, or have no checksum.
    """
    problem: StoreError | None = None
    for path in record_files(store, f"{fingerprint[:_NAME_CHARACTERS]}-*.json"):
        try:
            record = _read_record(path)
        except StoreError as error:
            problem = problem or error
            continue
        if record.fingerprint == fingerprint and record.is_checked:
            return record
        if record.fingerprint == fingerprint:
            problem = problem or StoreError(
                f"{str(path)!r}, the store's record of an artifact, has no checksum: an earlier bridgepack wrote it. "
                "Use `bridgepack build` with the changed recipe instead: it tokenises only what is missing."
            )
    if problem is not None:
        raise problem
    return None


def record_files(store: TokenStore, pattern: str = "*.json") -> list[Path]:
    """Return the files of a store's records, newest first."""
    paths = (store.folder / BUILDS).glob(pattern)
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _read_record(path: Path) -> BuildRecord:
    """Return the record in a file; raises StoreError if the file was changed or cannot be read."""
    try:
        content = json.loads(read_text(path, max_bytes=MAX_LARGE_BYTES))
        checksum = content.pop(_CHECKSUM, None)
        if checksum is not None and checksum != _checksum(content):
            raise _unusable_record(path, "it was changed: it does not match its checksum")
        return BuildRecord(
            fingerprint=str(content["fingerprint"]),
            output=Path(str(content["output"])),
            ranges={
                str(source): [RangeRecord(str(name), int(file), int(row)) for name, file, row in ranges]
                for source, ranges in content["ranges"].items()
            },
            path=path,
            is_checked=checksum is not None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged"
        raise _unusable_record(path, reason) from None


def _unusable_record(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"{str(path)!r}, the store's record of an artifact, cannot be used: {reason}. `bridgepack store verify "
        "--remove` removes it; the artifact's tokens then count as unused, and `repack` of it needs `build` instead."
    )
