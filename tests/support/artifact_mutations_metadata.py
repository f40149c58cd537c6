"""Mutations of the host's metadata file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import METADATA, Mutation, breaks, edit_metadata

MAX_SEQUENCES, MAX_LENGTH, MIN_WIDTH, SIZE = (
    "max_samples_per_bin",
    "dataset_max_seqlen",
    "min_packed_seqlen",
    "pack_size",
)


def _breaks(*codes: str) -> Callable[[Callable[[Path], None]], Mutation]:
    return breaks(*codes, where=METADATA)


def _write(folder: Path, text: str) -> None:
    (folder / METADATA).write_text(text)


def _set(folder: Path, name: str, value: Any) -> None:
    """Put one value into every entry."""
    edit_metadata(folder, lambda entries: [entry.update({name: value}) for entry in entries])


def _remove(folder: Path, name: str) -> None:
    """Take one value out of the second entry."""
    edit_metadata(folder, lambda entries: entries[1].pop(name))


@_breaks("BP401")
def metadata_missing(folder: Path) -> None:
    (folder / METADATA).unlink()


@_breaks("BP401")
def metadata_under_another_name(folder: Path) -> None:
    (folder / METADATA).rename(folder / "256_metadata.jsonl")


@_breaks("BP401")
def folder_in_place_of_metadata(folder: Path) -> None:
    (folder / METADATA).unlink()
    (folder / METADATA).mkdir()


@_breaks("BP403")
def metadata_of_one_object(folder: Path) -> None:
    _write(folder, json.dumps(json.loads((folder / METADATA).read_text())[0]))


@_breaks("BP403")
def metadata_as_json_lines(folder: Path) -> None:
    _write(folder, "".join(json.dumps(entry) + "\n" for entry in json.loads((folder / METADATA).read_text())))


@_breaks("BP403")
def metadata_without_entries(folder: Path) -> None:
    _write(folder, "[]")


@_breaks("BP403")
def metadata_of_numbers(folder: Path) -> None:
    _write(folder, "[1, 2]")


@_breaks("BP403")
def metadata_null(folder: Path) -> None:
    _write(folder, "null")


@_breaks("BP403")
def metadata_with_a_null_entry(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.append(None))  # type: ignore[arg-type]


@_breaks("BP403")
def metadata_empty(folder: Path) -> None:
    _write(folder, "")


@_breaks("BP403")
def metadata_cut_off(folder: Path) -> None:
    _write(folder, (folder / METADATA).read_text()[:-20])


@_breaks("BP403")
def metadata_in_another_encoding(folder: Path) -> None:
    (folder / METADATA).write_bytes((folder / METADATA).read_text().encode("utf-16"))


@_breaks("BP403")
def metadata_nested_too_deep(folder: Path) -> None:
    _write(folder, "[" * 100_000)


@_breaks("BP404")
def max_samples_missing(folder: Path) -> None:
    _remove(folder, MAX_SEQUENCES)


@_breaks("BP404")
def max_length_missing(folder: Path) -> None:
    _remove(folder, MAX_LENGTH)


@_breaks("BP404")
def min_width_missing(folder: Path) -> None:
    _remove(folder, MIN_WIDTH)


@_breaks("BP404")
def max_samples_as_text(folder: Path) -> None:
    _set(folder, MAX_SEQUENCES, "4")


@_breaks("BP404")
def max_length_null(folder: Path) -> None:
    _set(folder, MAX_LENGTH, None)


@_breaks("BP404")
def max_samples_true(folder: Path) -> None:
    _set(folder, MAX_SEQUENCES, True)


@_breaks("BP404")
def min_width_no_number(folder: Path) -> None:
    _set(folder, MIN_WIDTH, float("nan"))


@_breaks("BP404")
def max_length_infinite(folder: Path) -> None:
    _set(folder, MAX_LENGTH, float("inf"))


@_breaks("BP404")
def max_length_as_a_list(folder: Path) -> None:
    _set(folder, MAX_LENGTH, [256])


@_breaks("BP405")
def max_samples_too_small(folder: Path) -> None:
    _set(folder, MAX_SEQUENCES, 1)


@_breaks("BP405")
def max_samples_negative(folder: Path) -> None:
    _set(folder, MAX_SEQUENCES, -1)


@_breaks("BP406")
def max_length_too_small(folder: Path) -> None:
    edit_metadata(folder, lambda entries: [entry.update({MAX_LENGTH: entry[MAX_LENGTH] - 8}) for entry in entries])


@_breaks("BP406")
def max_length_zero(folder: Path) -> None:
    _set(folder, MAX_LENGTH, 0)


@_breaks("BP407")
def min_width_too_large(folder: Path) -> None:
    _set(folder, MIN_WIDTH, 256)


@_breaks("BP408")
def entries_doubled(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.extend(list(entries)))


@_breaks("BP408", "BP410")
def stale_entry_appended(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.append({**entries[0], SIZE: 4096}))


@_breaks("BP409")
def entry_of_validation_missing(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.pop())


@_breaks("BP410")
def pack_size_changed(folder: Path) -> None:
    _set(folder, SIZE, 512)


@_breaks("BP410")
def pack_size_missing(folder: Path) -> None:
    _remove(folder, SIZE)


@_breaks("BP410")
def pack_size_as_text(folder: Path) -> None:
    _set(folder, SIZE, "256")


@_breaks("BP412")
def max_length_too_large(folder: Path) -> None:
    _set(folder, MAX_LENGTH, 4096)


@_breaks("BP412")
def max_samples_too_large(folder: Path) -> None:
    _set(folder, MAX_SEQUENCES, 4096)


@_breaks("BP412")
def min_width_too_small(folder: Path) -> None:
    _set(folder, MIN_WIDTH, 1)


@_breaks("BP412")
def entries_exchanged(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.reverse())


@_breaks("BP412")
def efficiency_changed(folder: Path) -> None:
    _set(folder, "packing_efficiency", 99.99)


@_breaks("BP412")
def efficiency_no_number(folder: Path) -> None:
    _set(folder, "packing_efficiency", float("nan"))


@_breaks("BP412")
def factor_as_text(folder: Path) -> None:
    _set(folder, "packing_factor", "3.5")


@_breaks("BP412")
def factor_missing(folder: Path) -> None:
    _remove(folder, "packing_factor")
