"""Mutations of the host's metadata file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import METADATA, Mutation, breaks, edit_json, put_folder

MAX_SEQUENCES, MAX_LENGTH = "max_samples_per_bin", "dataset_max_seqlen"
MIN_WIDTH, SIZE = "min_packed_seqlen", "pack_size"


def _file(code: str, change: Callable[[Path], object]) -> Mutation:
    return breaks(code, lambda folder: change(folder / METADATA), where=METADATA)


def _edit(codes: str, change: Callable[[list[dict[str, Any]]], object]) -> Mutation:
    return breaks(codes, lambda folder: edit_json(folder, change, name=METADATA), where=METADATA)


def _set(code: str, name: str, value: Any) -> Mutation:
    """Return a mutation that puts one value into every entry."""
    return _edit(code, lambda entries: [entry.update({name: value}) for entry in entries])


def _remove(code: str, name: str) -> Mutation:
    """Return a mutation that takes one value out of the second entry."""
    return _edit(code, lambda entries: entries[1].pop(name))


def _written(change: Callable[[str], str], encoding: str | None = None) -> Mutation:
    return _file("BP403", lambda path: path.write_text(change(path.read_text()), encoding=encoding))


metadata_missing = _file("BP401", lambda path: path.unlink())
metadata_under_another_name = _file("BP401", lambda path: path.rename(path.with_name("256_metadata.jsonl")))
folder_in_place_of_metadata = _file("BP401", put_folder)
metadata_of_one_object = _written(lambda text: json.dumps(json.loads(text)[0]))
metadata_as_json_lines = _written(lambda text: "".join(json.dumps(entry) + "\n" for entry in json.loads(text)))
metadata_without_entries = _written(lambda _: "[]")
metadata_of_numbers = _written(lambda _: "[1, 2]")
metadata_null = _written(lambda _: "null")
metadata_with_a_null_entry = _edit("BP403", lambda entries: entries.append(None))  # type: ignore[arg-type]
metadata_empty = _written(lambda _: "")
metadata_cut_off = _written(lambda text: text[:-20])
metadata_in_another_encoding = _written(lambda text: text, "utf-16")
metadata_nested_too_deep = _written(lambda _: "[" * 100_000)
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
    "BP406", lambda entries: [entry.update({MAX_LENGTH: entry[MAX_LENGTH] - 8}) for entry in entries]
)
max_length_zero = _set("BP406", MAX_LENGTH, 0)
min_width_too_large = _set("BP407", MIN_WIDTH, 256)
entries_doubled = _edit("BP408", lambda entries: entries.extend(list(entries)))
stale_entry_appended = _edit("BP408 BP410", lambda entries: entries.append({**entries[0], SIZE: 4096}))
entry_of_validation_missing = _edit("BP409", lambda entries: entries.pop())
pack_size_changed = _set("BP410", SIZE, 512)
pack_size_missing = _remove("BP410", SIZE)
pack_size_as_text = _set("BP410", SIZE, "256")
max_length_too_large = _set("BP412", MAX_LENGTH, 4096)
max_samples_too_large = _set("BP412", MAX_SEQUENCES, 4096)
min_width_too_small = _set("BP412", MIN_WIDTH, 1)
entries_exchanged = _edit("BP412", lambda entries: entries.reverse())
efficiency_changed = _set("BP412", "packing_efficiency", 99.99)
efficiency_no_number = _set("BP412", "packing_efficiency", float("nan"))
factor_as_text = _set("BP412", "packing_factor", "3.5")
factor_missing = _remove("BP412", "packing_factor")
