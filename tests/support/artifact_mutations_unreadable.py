"""Mutations after which an artifact's manifest cannot be read: the check ends with an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import MANIFEST, Mutation, breaks, edit_manifest


def _record(manifest: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = manifest["splits"][0]["shards"][1]
    return record


def _unreadable(message: str) -> Callable[[Callable[[Path], None]], Mutation]:
    return breaks(message=message)


@_unreadable("format_version is 1; this bridgepack reads 2 and 3")
def format_of_the_future(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(format_version=1))


@_unreadable("format_version is None")
def format_missing(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.pop("format_version"))


@_unreadable("format_version is '2'")
def format_as_text(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(format_version="2"))


@_unreadable("cannot be read")
def manifest_cut_off(folder: Path) -> None:
    content = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(content[: len(content) // 2])


@_unreadable("cannot be read")
def manifest_empty(folder: Path) -> None:
    (folder / MANIFEST).write_text("")


@_unreadable("cannot be read")
def manifest_as_yaml(folder: Path) -> None:
    (folder / MANIFEST).write_text("format_version: 1\n")


@_unreadable("cannot be read")
def manifest_of_zeros(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(bytes((folder / MANIFEST).stat().st_size))


@_unreadable("cannot be read")
def manifest_in_another_encoding(folder: Path) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_text().encode("utf-16"))


@_unreadable("cannot be read")
def manifest_nested_too_deep(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


@_unreadable("cannot be read")
def folder_in_place_of_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()


@_unreadable("format_version is None")
def manifest_as_a_list(folder: Path) -> None:
    (folder / MANIFEST).write_text("[1]")


@_unreadable("splits: Field required")
def splits_missing(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.pop("splits"))


@_unreadable("splits: Input should be a valid tuple")
def splits_null(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(splits=None))


@_unreadable("packed_sequence_size: Input should be a valid integer")
def packed_sequence_size_as_words(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(packed_sequence_size="many"))


@_unreadable("splits.0.shards.1.num_rows: Input should be a finite number")
def number_of_rows_infinite(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: _record(manifest).update(num_rows=float("inf")))


@_unreadable("splits.0.shards.1.path: Input should be a valid string")
def path_null(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: _record(manifest).update(path=None))


@_unreadable("splits.0.statistics.num_packs: Field required")
def statistic_missing(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["statistics"].pop("num_packs"))


@_unreadable("splits.0.drops.over_long: Input should be a valid integer")
def drops_as_lists(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest["splits"][0]["drops"].update(over_long=[1]))
