"""A store's records of artifacts: which token files each was made from."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.files import make_folders, write_text
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.store.store import BUILDS, TokenStore

_FINGERPRINT_CHARACTERS, _PLACE_CHARACTERS = 16, 8


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

    @property
    def is_there(self) -> bool:
        """The artifact still exists where it was built."""
        try:
            content = json.loads((self.output / MANIFEST_FILE).read_text(encoding="utf-8"))
            return bool(content["fingerprint"] == self.fingerprint)
        except (OSError, ValueError, KeyError, TypeError):
            return False


def write_build_record(
    store: TokenStore, output: Path, fingerprint: str, results: Mapping[str, Sequence[RangeResult]]
) -> None:
    """Record which token files an artifact was made from."""
    place = output.resolve()
    mark = hashlib.sha256(str(place).encode(errors="surrogateescape")).hexdigest()[:_PLACE_CHARACTERS]
    path = store.folder / BUILDS / f"{fingerprint[:_FINGERPRINT_CHARACTERS]}-{mark}.json"
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
    write_text(path, json.dumps(content) + "\n", is_shared=True)


def iter_build_records(store: TokenStore) -> Iterator[BuildRecord]:
    """Yield the records of a store, newest first; skips unreadable ones."""
    folder = store.folder / BUILDS
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in paths:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            yield BuildRecord(
                fingerprint=str(content["fingerprint"]),
                output=Path(str(content["output"])),
                ranges={
                    str(source): [RangeRecord(str(name), int(file), int(row)) for name, file, row in ranges]
                    for source, ranges in content["ranges"].items()
                },
                path=path,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue


def find_build_record(store: TokenStore, fingerprint: str) -> BuildRecord | None:
    """Return the newest record of an artifact, wherever it was built; None if there is none."""
    return next((record for record in iter_build_records(store) if record.fingerprint == fingerprint), None)
