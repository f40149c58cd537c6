"""Manifests and the host's metadata: what is said where there is none or another one."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.artifact.bridge_metadata import (
    BRIDGE_METADATA_FILE,
    BridgeMetadataEntry,
    bridge_metadata_entry,
    read_bridge_metadata,
)
from bridgepack.data.artifact.manifest import MANIFEST_FILE, manifest_text, read_manifest, write_manifest
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import Drop, DropReason, InputRecord, Manifest, ShardRecord, SplitRecord, SplitStatistics
from tests.support.traced_artifacts import change_manifest

#: Two packs of 8: [4 + 3] and [5].
STATISTICS = SplitStatistics(
    **{field.name: 0 for field in fields(SplitStatistics)}
    | {"num_sequences": 3, "num_packs": 2, "num_tokens": 12, "length_histogram": ((32, 3),)}
)
SPLIT = SplitRecord(
    name="training",
    inputs=(InputRecord(path="a.jsonl", num_bytes=99, sha256="0", num_rows=4),),
    shards=(ShardRecord(path="training/shard", num_rows=2, num_bytes=77, sha256="1"),),
    statistics=STATISTICS,
    drops={"too_short": 1},
    drop_examples=(Drop(file_index=0, row=2, reason=DropReason.TOO_SHORT, detail="1 token"),),
)
MANIFEST = Manifest(
    format_version=5,
    fingerprint="f" * 64,
    packed_sequence_size=8,
    pad_seq_to_mult=1,
    tokenizer={"name_or_path": "tokenizer", "eos_token_id": 2, "files": {"tokenizer.json": "2"}},
    recipe={"name": "små", "data": {"train": ["a.jsonl"]}},
    resolved={"pad_seq_to_mult": {"value": 1, "because": "…"}},
    splits=(SPLIT,),
    versions={"bridgepack": "0.1.0"},
)


def test_former_version_lacks_what_was_added_since_and_has_a_checksum(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    content = json.loads((tmp_path / MANIFEST_FILE).read_text()) | {"format_version": 4}
    (split,) = content["splits"]
    for name in ("lost_content", "lost_examples", "sources"):
        del split[name]
    for name in ("num_repeated", "num_split", "num_pieces", "num_untrained_pieces"):
        del split["statistics"][name]
    (tmp_path / MANIFEST_FILE).write_text(manifest_text(content))

    found = read_manifest(tmp_path)
    assert found.splits == (SPLIT,)
    assert not found.splits[0].is_mixture
    (tmp_path / MANIFEST_FILE).write_text(manifest_text(content).replace("a.jsonl", "b.jsonl"))
    with pytest.raises(ArtifactError, match="was changed"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "manifest.json cannot be read: "),
        ("{", "manifest.json cannot be read: "),
        ("[" * 100_000, "manifest.json cannot be read: "),
        ("[]", "format_version is None; this bridgepack reads 2, 3, 4, 5. Build the artifact again, or use the"),
        ('{"format_version": 1}', "format_version is 1; this bridgepack reads 2, 3, 4, 5."),
        ('{"format_version": 3}', "manifest.json: fingerprint: "),
    ],
)
def test_manifest_that_cannot_be_read(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / MANIFEST_FILE).write_text(content)

    with pytest.raises(ArtifactError) as raised:
        read_manifest(tmp_path)

    assert message in str(raised.value)
    assert "Build the artifact again" in str(raised.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("packed_sequence_size", "8"),
        ("splits__0__shards__0__num_rows", None),
        ("splits__0__drop_examples__0__reason", "bored"),
        ("splits", 5),
    ],
)
def test_manifest_with_a_wrong_value_names_the_place(tmp_path: Path, path: str, value: Any) -> None:
    write_manifest(tmp_path, MANIFEST)
    change_manifest(tmp_path, **{path: value})

    if value == "8":
        assert read_manifest(tmp_path).packed_sequence_size == 8
    else:
        place = path.replace("__", ".")
        with pytest.raises(ArtifactError, match=f"manifest.json: {place}: .*Build the artifact again."):
            read_manifest(tmp_path)


ENTRY: BridgeMetadataEntry = {
    "dataset_max_seqlen": 8,
    "max_samples_per_bin": 2,
    "packing_factor": 1.33,
    "packing_efficiency": 74.07,
    "pack_size": 9,
    "min_packed_seqlen": 4,
}


def test_split_without_packs_has_no_entry() -> None:
    statistics = SplitStatistics(**{field.name: 0 for field in fields(SplitStatistics)})
    with pytest.raises(DataError, match="num_packs is 0"):
        bridge_metadata_entry(statistics, packed_sequence_size=9)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", "Invalid JSON"),
        (b"\xff", "Invalid JSON"),
        ("{}", "is {}: Input should be a valid array"),
        ("[]", "at least 1 item"),
        ("[1]", "entry 0 is 1: Input should be an object"),
        (None, "does not exist"),
        ({"max_samples_per_bin": 2.0}, "entry 1: max_samples_per_bin is 2.0: Input should be a valid integer"),
        ({"dataset_max_seqlen": "8"}, "entry 1: dataset_max_seqlen is '8': Input should be a valid integer"),
        ({"min_packed_seqlen": True}, "entry 1: min_packed_seqlen is True: Input should be a valid integer"),
        ({"pack_size": -1}, "entry 1: pack_size is -1: Input should be greater than or equal to 0"),
        ({"packing_factor": float("nan")}, "entry 1: packing_factor is nan: Input should be a finite number"),
        ({"packing_efficiency": None}, "entry 1: packing_efficiency is None: Input should be a valid number"),
        ('[{"more": 1}]', "entry 0: dataset_max_seqlen is .*: Field required"),
    ],
)
def test_file_of_another_shape_is_an_artifact_error(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / BRIDGE_METADATA_FILE
    if isinstance(content, dict):
        content = json.dumps([ENTRY, {**ENTRY, **content}])
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    with pytest.raises(ArtifactError, match=message):
        read_bridge_metadata(path)
