"""Mutations after which an artifact's manifest cannot be read: the check ends with an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import MANIFEST, Mutation, breaks, edit_manifest


def _record(manifest: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = manifest["splits"][0]["shards"][1]
    return record


def _unreadable(message: str) -> Callable[[Callable[[Path], object]], Mutation]:
    return breaks(message=message)


format_of_the_future = _unreadable("format_version is 1; this bridgepack reads 2 and 3")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(format_version=1))
)
format_missing = _unreadable("format_version is None")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.pop("format_version"))
)
format_as_text = _unreadable("format_version is '2'")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(format_version="2"))
)


@_unreadable("cannot be read")
def manifest_cut_off(folder: Path) -> None:
    content = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(content[: len(content) // 2])


manifest_empty = _unreadable("cannot be read")(lambda folder: (folder / MANIFEST).write_text(""))
manifest_as_yaml = _unreadable("cannot be read")(lambda folder: (folder / MANIFEST).write_text("format_version: 1\n"))
manifest_of_zeros = _unreadable("cannot be read")(
    lambda folder: (folder / MANIFEST).write_bytes(bytes((folder / MANIFEST).stat().st_size))
)
manifest_in_another_encoding = _unreadable("cannot be read")(
    lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_text().encode("utf-16"))
)
manifest_nested_too_deep = _unreadable("cannot be read")(lambda folder: (folder / MANIFEST).write_text("[" * 100_000))


@_unreadable("cannot be read")
def folder_in_place_of_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()


manifest_as_a_list = _unreadable("format_version is None")(lambda folder: (folder / MANIFEST).write_text("[1]"))
splits_missing = _unreadable("splits: Field required")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.pop("splits"))
)
splits_null = _unreadable("splits: Input should be a valid tuple")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(splits=None))
)
packed_sequence_size_as_words = _unreadable("packed_sequence_size: Input should be a valid integer")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size="many"))
)
number_of_rows_infinite = _unreadable("splits.0.shards.1.num_rows: Input should be a finite number")(
    lambda folder: edit_manifest(folder, lambda manifest: _record(manifest).update(num_rows=float("inf")))
)
path_null = _unreadable("splits.0.shards.1.path: Input should be a valid string")(
    lambda folder: edit_manifest(folder, lambda manifest: _record(manifest).update(path=None))
)
statistic_missing = _unreadable("splits.0.statistics.num_packs: Field required")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["statistics"].pop("num_packs"))
)
drops_as_lists = _unreadable("splits.0.drops.over_long: Input should be a valid integer")(
    lambda folder: edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].update(over_long=[1]))
)
