"""Mutations after which an artifact's manifest cannot be read: the check ends with an error that says why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.artifact_mutations import MANIFEST, Mutation, breaks, edit_manifest


def _edit(message: str, change: Callable[[dict[str, Any]], object]) -> Mutation:
    """Return a mutation of what the manifest says."""
    return breaks(message=message)(lambda folder: edit_manifest(folder, change))


def _bytes(change: Callable[[bytes], bytes], message: str = "cannot be read") -> Mutation:
    """Return a mutation of the manifest's bytes."""
    return breaks(message=message)(
        lambda folder: (folder / MANIFEST).write_bytes(change((folder / MANIFEST).read_bytes()))
    )


@breaks(message="cannot be read")
def folder_in_place_of_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()


manifest_cut_off = _bytes(lambda content: content[: len(content) // 2])
manifest_empty = _bytes(lambda _: b"")
manifest_as_yaml = _bytes(lambda _: b"format_version: 1\n")
manifest_of_zeros = _bytes(lambda content: bytes(len(content)))
manifest_in_another_encoding = _bytes(lambda content: content.decode().encode("utf-16"))
manifest_nested_too_deep = _bytes(lambda _: b"[" * 100_000)
manifest_as_a_list = _bytes(lambda _: b"[1]", "format_version is None")
format_of_the_future = _edit(
    "format_version is 1; this bridgepack reads 2 and 3", lambda manifest: manifest.update(format_version=1)
)
format_missing = _edit("format_version is None", lambda manifest: manifest.pop("format_version"))
format_as_text = _edit("format_version is '2'", lambda manifest: manifest.update(format_version="2"))
splits_missing = _edit("splits: Field required", lambda manifest: manifest.pop("splits"))
splits_null = _edit("splits: Input should be a valid tuple", lambda manifest: manifest.update(splits=None))
packed_sequence_size_as_words = _edit(
    "packed_sequence_size: Input should be a valid integer",
    lambda manifest: manifest.update(packed_sequence_size="many"),
)
number_of_rows_infinite = _edit(
    "splits.0.shards.1.num_rows: Input should be a finite number",
    lambda manifest: manifest["splits"][0]["shards"][1].update(num_rows=float("inf")),
)
path_null = _edit(
    "splits.0.shards.1.path: Input should be a valid string",
    lambda manifest: manifest["splits"][0]["shards"][1].update(path=None),
)
statistic_missing = _edit(
    "splits.0.statistics.num_packs: Field required",
    lambda manifest: manifest["splits"][0]["statistics"].pop("num_packs"),
)
drops_as_lists = _edit(
    "splits.0.drops.over_long: Input should be a valid integer",
    lambda manifest: manifest["splits"][0]["drops"].update(over_long=[1]),
)
