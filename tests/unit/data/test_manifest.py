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
from bridgepack.data.artifact.manifest import MANIFEST_FILE, manifest_text, read_manifest
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import SplitStatistics
from tests.support.traced_artifacts import build_traced, change_manifest


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    return build_traced(tmp_path, chatml_tokenizer)


def test_a_manifest_that_was_changed_is_refused(artifact: Path) -> None:
    content = json.loads((artifact / MANIFEST_FILE).read_text())
    (artifact / MANIFEST_FILE).write_text(manifest_text(content).replace("rows.jsonl", "b.jsonl"))

    with pytest.raises(ArtifactError, match="was changed"):
        read_manifest(artifact)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "manifest.json cannot be read: "),
        ("{", "manifest.json cannot be read: "),
        ("[" * 100_000, "manifest.json cannot be read: "),
        ("[]", "this bridgepack reads 6. Build the artifact again"),
        ('{"format_version": 1}', "format_version is 1; this bridgepack reads 6."),
        ('{"format_version": 5}', "format_version is 5; this bridgepack reads 6."),
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
        ("packed_sequence_size", "16"),
        ("splits__0__shards__0__num_rows", None),
        ("splits__0__drop_examples__0__reason", "bored"),
        ("splits", 5),
    ],
)
def test_manifest_with_a_wrong_value_names_the_place(artifact: Path, path: str, value: Any) -> None:
    change_manifest(artifact, **{path: value})

    if value == "16":
        assert read_manifest(artifact).packed_sequence_size == 16
    else:
        place = path.replace("__", ".")
        with pytest.raises(ArtifactError, match=f"manifest.json: {place}: .*Build the artifact again."):
            read_manifest(artifact)


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
        ("{}", "is {}: Input should be a"),
        ("[]", "at least 1 item"),
        ("[1]", "entry 0 is 1"),
        (None, "does not exist"),
        ({"max_samples_per_bin": 2.0}, "entry 1: max_samples_per_bin is 2.0"),
        ({"dataset_max_seqlen": "8"}, "entry 1: dataset_max_seqlen is '8'"),
        ({"min_packed_seqlen": True}, "entry 1: min_packed_seqlen is True"),
        ({"pack_size": -1}, "entry 1: pack_size is -1"),
        ({"packing_factor": float("nan")}, "entry 1: packing_factor is nan"),
        ({"packing_efficiency": None}, "entry 1: packing_efficiency is None"),
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
