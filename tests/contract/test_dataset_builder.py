"""The real dataset builder takes an artifact as it is: it loads it, packs nothing and writes nothing."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, BridgeMetadataEntry, write_bridge_metadata
from bridgepack.records import TRAIN, VALIDATION, PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings
from tests.support.host_datasets import (
    assert_same_batches,
    build_host_datasets,
    build_word_tokenizer,
    host_dataset_config,
    snapshot,
)
from tests.support.packed_rows import EOS_TOKEN_ID, random_rows, write_shards

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

PACKED_SEQUENCE_SIZE = 128
METADATA: BridgeMetadataEntry = {
    "dataset_max_seqlen": 128,
    "max_samples_per_bin": 128,
    "packing_factor": 1.5,
    "packing_efficiency": 90.0,
    "pack_size": PACKED_SEQUENCE_SIZE,
    "min_packed_seqlen": 1,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    path: Path
    pad_seq_to_mult: int
    training: list[PackedRow]
    validation: list[PackedRow]


@pytest.fixture(scope="module")
def host_tokenizer(bridge: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build_word_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(params=[1, 8], ids=["multiple-1", "multiple-8"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Artifact:
    path = tmp_path / "artifact"
    rows = random_rows(5, num_rows=30, packed_sequence_size=PACKED_SEQUENCE_SIZE, pad_seq_to_mult=request.param)
    write_shards(path / TRAIN, rows[:21], num_shards=3, row_group_size=4)
    write_shards(path / VALIDATION, rows[21:], num_shards=2, row_group_size=4)
    write_bridge_metadata(path / BRIDGE_METADATA_FILE, [METADATA, METADATA])
    return Artifact(path=path, pad_seq_to_mult=request.param, training=rows[:21], validation=rows[21:])


def _config(artifact: Artifact, dataset_root: Path, **changes: Any) -> Any:
    return host_dataset_config(
        artifact.path,
        dataset_root=dataset_root,
        packed_sequence_size=PACKED_SEQUENCE_SIZE,
        pad_seq_to_mult=artifact.pad_seq_to_mult,
        **changes,
    )


@pytest.mark.parametrize("pad_cu_seqlens", [False, True])
@pytest.mark.parametrize("shards", ["", "/", "/shard-*.idx.parquet"], ids=["directory", "slash", "glob"])
def test_builder_loads_the_artifact_and_writes_nothing(
    tmp_path: Path, artifact: Artifact, host_tokenizer: Any, shards: str, pad_cu_seqlens: bool
) -> None:
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    dataset_root = tmp_path / "dataset_root"
    before = snapshot(tmp_path)

    config = _config(artifact, dataset_root, shards=shards, pad_cu_seqlens=pad_cu_seqlens)
    training, validation, test = build_host_datasets(config, host_tokenizer)

    assert type(training) is type(validation) is GPTSFTPackedParquetDataset
    assert (len(training), len(validation), test) == (len(artifact.training), len(artifact.validation), None)
    num_read = sum(1 for dataset in (training, validation) for index in range(len(dataset)) if dataset[index])
    assert num_read == len(artifact.training) + len(artifact.validation)
    assert snapshot(tmp_path) == before
    assert not dataset_root.exists()


def test_builder_does_not_touch_raw_data_beside(tmp_path: Path, artifact: Artifact, host_tokenizer: Any) -> None:
    dataset_root = tmp_path / "dataset_root"
    dataset_root.mkdir()
    conversation = {"messages": [{"role": "user", "content": "word3"}, {"role": "assistant", "content": "word4"}]}
    for split in (TRAIN, VALIDATION):
        (dataset_root / f"{split}.jsonl").write_text(json.dumps(conversation) + "\n")
    before = snapshot(tmp_path)

    training, validation, _ = build_host_datasets(_config(artifact, dataset_root), host_tokenizer)

    assert (len(training), len(validation)) == (len(artifact.training), len(artifact.validation))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("pad_cu_seqlens", [False, True])
def test_builder_s_datasets_collate_as_predicted(
    tmp_path: Path, artifact: Artifact, host_tokenizer: Any, pad_cu_seqlens: bool
) -> None:
    config = _config(artifact, tmp_path / "dataset_root", pad_cu_seqlens=pad_cu_seqlens)
    settings = CollateSettings(
        packed_sequence_size=PACKED_SEQUENCE_SIZE,
        pad_seq_to_mult=artifact.pad_seq_to_mult,
        eos_token_id=EOS_TOKEN_ID,
        pad_to_max_length=True,
        pad_cu_seqlens=pad_cu_seqlens,
        metadata=CollateMetadata.from_entries([METADATA, METADATA]),
    )

    training, validation, _ = build_host_datasets(config, host_tokenizer)

    assert_same_batches(training, artifact.training, settings, rows_per_batch=4)
    assert_same_batches(validation, artifact.validation, settings, rows_per_batch=4)


def test_builder_packs_where_a_split_s_path_is_missing(tmp_path: Path, artifact: Artifact, host_tokenizer: Any) -> None:
    config = _config(artifact, tmp_path / "dataset_root", packed_val_data_path=None)

    with pytest.raises(FileNotFoundError, match=r"validation\.jsonl"):
        build_host_datasets(config, host_tokenizer)


def test_builder_makes_a_folder_without_metadata_path(tmp_path: Path, artifact: Artifact, host_tokenizer: Any) -> None:
    dataset_root = tmp_path / "dataset_root"

    build_host_datasets(_config(artifact, dataset_root, packed_metadata_path=None), host_tokenizer)

    assert [path.name for path in dataset_root.iterdir()] == ["packed"]
