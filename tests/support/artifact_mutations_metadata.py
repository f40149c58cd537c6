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


def _breaks(*codes: str) -> Callable[[Callable[[Path], object]], Mutation]:
    return breaks(*codes, where=METADATA)


def _write(folder: Path, text: str) -> None:
    (folder / METADATA).write_text(text)


def _set(folder: Path, name: str, value: Any) -> None:
    """Put one value into every entry."""
    edit_metadata(folder, lambda entries: [entry.update({name: value}) for entry in entries])


def _remove(folder: Path, name: str) -> None:
    """Take one value out of the second entry."""
    edit_metadata(folder, lambda entries: entries[1].pop(name))


metadata_missing = _breaks("BP401")(lambda folder: (folder / METADATA).unlink())
metadata_under_another_name = _breaks("BP401")(lambda folder: (folder / METADATA).rename(folder / "256_metadata.jsonl"))


@_breaks("BP401")
def folder_in_place_of_metadata(folder: Path) -> None:
    (folder / METADATA).unlink()
    (folder / METADATA).mkdir()


metadata_of_one_object = _breaks("BP403")(
    lambda folder: _write(folder, json.dumps(json.loads((folder / METADATA).read_text())[0]))
)
metadata_as_json_lines = _breaks("BP403")(
    lambda folder: _write(
        folder, "".join(json.dumps(entry) + "\n" for entry in json.loads((folder / METADATA).read_text()))
    )
)
metadata_without_entries = _breaks("BP403")(lambda folder: _write(folder, "[]"))
metadata_of_numbers = _breaks("BP403")(lambda folder: _write(folder, "[1, 2]"))
metadata_null = _breaks("BP403")(lambda folder: _write(folder, "null"))


@_breaks("BP403")
def metadata_with_a_null_entry(folder: Path) -> None:
    edit_metadata(folder, lambda entries: entries.append(None))  # type: ignore[arg-type]


metadata_empty = _breaks("BP403")(lambda folder: _write(folder, ""))
metadata_cut_off = _breaks("BP403")(lambda folder: _write(folder, (folder / METADATA).read_text()[:-20]))
metadata_in_another_encoding = _breaks("BP403")(
    lambda folder: (folder / METADATA).write_bytes((folder / METADATA).read_text().encode("utf-16"))
)
metadata_nested_too_deep = _breaks("BP403")(lambda folder: _write(folder, "[" * 100_000))
max_samples_missing = _breaks("BP404")(lambda folder: _remove(folder, MAX_SEQUENCES))
max_length_missing = _breaks("BP404")(lambda folder: _remove(folder, MAX_LENGTH))
min_width_missing = _breaks("BP404")(lambda folder: _remove(folder, MIN_WIDTH))
max_samples_as_text = _breaks("BP404")(lambda folder: _set(folder, MAX_SEQUENCES, "4"))
max_length_null = _breaks("BP404")(lambda folder: _set(folder, MAX_LENGTH, None))
max_samples_true = _breaks("BP404")(lambda folder: _set(folder, MAX_SEQUENCES, True))
min_width_no_number = _breaks("BP404")(lambda folder: _set(folder, MIN_WIDTH, float("nan")))
max_length_infinite = _breaks("BP404")(lambda folder: _set(folder, MAX_LENGTH, float("inf")))
max_length_as_a_list = _breaks("BP404")(lambda folder: _set(folder, MAX_LENGTH, [256]))
max_samples_too_small = _breaks("BP405")(lambda folder: _set(folder, MAX_SEQUENCES, 1))
max_samples_negative = _breaks("BP405")(lambda folder: _set(folder, MAX_SEQUENCES, -1))
max_length_too_small = _breaks("BP406")(
    lambda folder: edit_metadata(
        folder, lambda entries: [entry.update({MAX_LENGTH: entry[MAX_LENGTH] - 8}) for entry in entries]
    )
)
max_length_zero = _breaks("BP406")(lambda folder: _set(folder, MAX_LENGTH, 0))
min_width_too_large = _breaks("BP407")(lambda folder: _set(folder, MIN_WIDTH, 256))
entries_doubled = _breaks("BP408")(lambda folder: edit_metadata(folder, lambda entries: entries.extend(list(entries))))
stale_entry_appended = _breaks("BP408", "BP410")(
    lambda folder: edit_metadata(folder, lambda entries: entries.append({**entries[0], SIZE: 4096}))
)
entry_of_validation_missing = _breaks("BP409")(lambda folder: edit_metadata(folder, lambda entries: entries.pop()))
pack_size_changed = _breaks("BP410")(lambda folder: _set(folder, SIZE, 512))
pack_size_missing = _breaks("BP410")(lambda folder: _remove(folder, SIZE))
pack_size_as_text = _breaks("BP410")(lambda folder: _set(folder, SIZE, "256"))
max_length_too_large = _breaks("BP412")(lambda folder: _set(folder, MAX_LENGTH, 4096))
max_samples_too_large = _breaks("BP412")(lambda folder: _set(folder, MAX_SEQUENCES, 4096))
min_width_too_small = _breaks("BP412")(lambda folder: _set(folder, MIN_WIDTH, 1))
entries_exchanged = _breaks("BP412")(lambda folder: edit_metadata(folder, lambda entries: entries.reverse()))
efficiency_changed = _breaks("BP412")(lambda folder: _set(folder, "packing_efficiency", 99.99))
efficiency_no_number = _breaks("BP412")(lambda folder: _set(folder, "packing_efficiency", float("nan")))
factor_as_text = _breaks("BP412")(lambda folder: _set(folder, "packing_factor", "3.5"))
factor_missing = _breaks("BP412")(lambda folder: _remove(folder, "packing_factor"))
