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
    write_bridge_metadata,
)
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import SplitStatistics

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


def test_written_entries_are_read_back_and_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / BRIDGE_METADATA_FILE

    write_bridge_metadata(path, [ENTRY])
    first_bytes = path.read_bytes()
    write_bridge_metadata(path, [ENTRY, ENTRY])
    assert read_bridge_metadata(path) == [ENTRY, ENTRY]
    path.write_text(json.dumps([{**ENTRY, "more": 1}]))
    assert read_bridge_metadata(path) == [{**ENTRY, "more": 1}]
    write_bridge_metadata(path, [ENTRY])

    assert path.read_bytes() == first_bytes
    assert json.loads(first_bytes) == [ENTRY]
    assert [file.name for file in tmp_path.iterdir()] == [BRIDGE_METADATA_FILE]


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
