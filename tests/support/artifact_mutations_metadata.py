"""Mutations of the host's metadata file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import METADATA, Mutation, breaks, edit_metadata

MAX_SEQUENCES, MAX_LENGTH = "max_samples_per_bin", "dataset_max_seqlen"
MIN_WIDTH, SIZE = "min_packed_seqlen", "pack_size"


def _breaks(*codes: str) -> Callable[[Callable[[Path], object]], Mutation]:
    return breaks(*codes, where=METADATA)


def _edit(change: Callable[[list[dict[str, Any]]], object], *codes: str) -> Mutation:
    """Return a mutation of the entries."""
    return _breaks(*codes)(lambda folder: edit_metadata(folder, change))


def _set(code: str, name: str, value: Any) -> Mutation:
    """Return a mutation that puts one value into every entry."""
    return _edit(lambda entries: [entry.update({name: value}) for entry in entries], code)


def _remove(code: str, name: str) -> Mutation:
    """Return a mutation that takes one value out of the second entry."""
    return _edit(lambda entries: entries[1].pop(name), code)


def _written(code: str, text: str) -> Mutation:
    return _breaks(code)(lambda folder: _write(folder, text))


def _write(folder: Path, text: str) -> None:
    (folder / METADATA).write_text(text)


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
metadata_without_entries = _written("BP403", "[]")
metadata_of_numbers = _written("BP403", "[1, 2]")
metadata_null = _written("BP403", "null")


metadata_with_a_null_entry = _edit(lambda entries: entries.append(None), "BP403")  # type: ignore[arg-type]
metadata_empty = _written("BP403", "")
metadata_cut_off = _breaks("BP403")(lambda folder: _write(folder, (folder / METADATA).read_text()[:-20]))
metadata_in_another_encoding = _breaks("BP403")(
    lambda folder: (folder / METADATA).write_bytes((folder / METADATA).read_text().encode("utf-16"))
)
metadata_nested_too_deep = _written("BP403", "[" * 100_000)
max_samples_missing = _remove("BP404", MAX_SEQUENCES)
max_length_missing = _remove("BP404", MAX_LENGTH)
min_width_missing = _remove("BP404", MIN_WIDTH)
max_samples_as_text = _set("BP404", MAX_SEQUENCES, "4")
max_length_null = _set("BP404", MAX_LENGTH, None)
max_samples_true = _set("BP404", MAX_SEQUENCES, True)
min_width_no_number = _set("BP404", MIN_WIDTH, float("nan"))
max_length_infinite = _set("BP404", MAX_LENGTH, float("inf"))
max_length_as_a_list = _set("BP404", MAX_LENGTH, [256])
max_samples_too_small = _set("BP405", MAX_SEQUENCES, 1)
max_samples_negative = _set("BP405", MAX_SEQUENCES, -1)
max_length_too_small = _edit(
    lambda entries: [entry.update({MAX_LENGTH: entry[MAX_LENGTH] - 8}) for entry in entries], "BP406"
)
max_length_zero = _set("BP406", MAX_LENGTH, 0)
min_width_too_large = _set("BP407", MIN_WIDTH, 256)
entries_doubled = _edit(lambda entries: entries.extend(list(entries)), "BP408")
stale_entry_appended = _edit(lambda entries: entries.append({**entries[0], SIZE: 4096}), "BP408", "BP410")
entry_of_validation_missing = _edit(lambda entries: entries.pop(), "BP409")
pack_size_changed = _set("BP410", SIZE, 512)
pack_size_missing = _remove("BP410", SIZE)
pack_size_as_text = _set("BP410", SIZE, "256")
max_length_too_large = _set("BP412", MAX_LENGTH, 4096)
max_samples_too_large = _set("BP412", MAX_SEQUENCES, 4096)
min_width_too_small = _set("BP412", MIN_WIDTH, 1)
entries_exchanged = _edit(lambda entries: entries.reverse(), "BP412")
efficiency_changed = _set("BP412", "packing_efficiency", 99.99)
efficiency_no_number = _set("BP412", "packing_efficiency", float("nan"))
factor_as_text = _set("BP412", "packing_factor", "3.5")
factor_missing = _remove("BP412", "packing_factor")
