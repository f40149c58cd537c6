"""What is at an output already, and whether something can be written there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, PLAN_FOLDER
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.errors import ArtifactError, BridgepackError, StoreError
from bridgepack.records import Manifest


def existing_manifest(output: Path) -> Manifest | None:
    """Return the manifest at the output; one that cannot be read counts as none and is replaced."""
    if not (output / MANIFEST_FILE).exists():
        return None
    try:
        return read_manifest(output)
    except ArtifactError:
        return None


def is_built(output: Path, existing: Manifest | None, fingerprint: str) -> bool:
    """Say whether the output holds the artifact of a fingerprint, with every file of the right size."""
    if existing is None or existing.fingerprint != fingerprint:
        return False
    shards = [(output / shard.path, shard.num_bytes) for split in existing.splits for shard in split.shards]
    plans = [output / PLAN_FOLDER / f"{split.name}.parquet" for split in existing.splits]
    others = [output / BRIDGE_METADATA_FILE, output / PLAN_FOLDER / DROPPED_ROWS_FILE, *plans]
    return all(path.is_file() and path.stat().st_size == size for path, size in shards) and all(
        path.is_file() for path in others
    )


def refuse_unwritable(output: Path, store: Path) -> None:
    """Make sure that files can be made where an artifact and a store will be; nothing is left there.

    Raises:
        ArtifactError, StoreError: when not.
    """
    _try(output.absolute().parent, ArtifactError(f"output is {str(output)!r}; {{}}. Choose another --output."))
    _try(store.absolute(), StoreError(f"the token store is {str(store)!r}; {{}}. Choose another --store."))


def _try(folder: Path, error: BridgepackError) -> None:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as stream:
            stream.write(b"x")
    except OSError as cause:
        reason = f"{str(place)!r} cannot be written: {cause.strerror or cause}"
        raise type(error)(str(error).format(reason)) from None
