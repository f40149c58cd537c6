"""The predicted batch is the one that the real megatron-bridge collates, for every value, shape and dtype."""

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.artifact.bridge_metadata import (
    BRIDGE_METADATA_FILE,
    BridgeMetadataEntry,
    bridge_metadata_entry,
    write_bridge_metadata,
)
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow, SplitStatistics
from bridgepack.replay.collate import CollateMetadata, CollateSettings, predict_batch
from tests.support.examples import examples
from tests.support.host_datasets import assert_same_batch, assert_same_batches, open_host_dataset
from tests.support.installed_host import host_release
from tests.support.packed_rows import EOS_TOKEN_ID, packed_rows, random_rows, write_shard

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

PACKED_SEQUENCE_SIZE = 256
#: pad_to_max_length, pad_cu_seqlens: the host takes the second only with the first.
PADDINGS = ((False, False), (True, False), (True, True))


def _statistics(lengths: Sequence[Sequence[int]]) -> SplitStatistics:
    """Return the statistics of packs of these physical runtime lengths, as far as the host's metadata goes."""
    totals = [int(sum(pack)) for pack in lengths]
    zeros = dict.fromkeys((field.name for field in fields(SplitStatistics)), 0)
    known = {
        "num_sequences": sum(map(len, lengths)),
        "num_packs": len(lengths),
        "num_tokens": sum(totals) - len(totals),
        "num_alignment_tokens": len(totals),
        "max_runtime_length": max(int(max(pack)) for pack in lengths),
        "max_sequences_per_pack": max(map(len, lengths)),
        "min_pack_tokens": min(totals),
    }
    return SplitStatistics(**{**zeros, **known})  # type: ignore[arg-type]


def _entry(rows: Sequence[PackedRow]) -> BridgeMetadataEntry:
    statistics = _statistics([np.diff([*row.seq_start_id, len(row.input_ids)]) - 1 for row in rows])
    return bridge_metadata_entry(statistics, packed_sequence_size=PACKED_SEQUENCE_SIZE)


def _settings(multiple: int, *, pad_to_max_length: bool = True, **changes: Any) -> CollateSettings:
    return CollateSettings(
        release=host_release(),
        packed_sequence_size=changes.pop("packed_sequence_size", PACKED_SEQUENCE_SIZE),
        pad_seq_to_mult=multiple,
        eos_token_id=EOS_TOKEN_ID,
        pad_to_max_length=pad_to_max_length,
        **changes,
    )


@pytest.mark.parametrize("multiple", [1, 8])
def test_metadata_that_promises_too_little(tmp_path: Path, host_tokenizer: Any, multiple: int) -> None:
    rows = random_rows(3, num_rows=8, packed_sequence_size=PACKED_SEQUENCE_SIZE, pad_seq_to_mult=multiple)
    write_shard(tmp_path / "shard.idx.parquet", rows, row_group_size=4)
    entry = _entry(rows)
    entry["max_samples_per_bin"], entry["dataset_max_seqlen"], entry["min_packed_seqlen"] = 1, 3, 255
    metadata_path = tmp_path / BRIDGE_METADATA_FILE
    write_bridge_metadata(metadata_path, [entry])
    collate_settings = _settings(multiple, pad_cu_seqlens=True, metadata=CollateMetadata.from_entries([entry]))
    host = open_host_dataset(tmp_path, host_tokenizer, collate_settings, metadata_path=metadata_path)

    assert_same_batches(host, rows, collate_settings, rows_per_batch=4)


def test_sequence_of_one_stored_token(tmp_path: Path, host_tokenizer: Any) -> None:
    row = PackedRow(
        input_ids=np.array([5, 6, 7, 8, 9], dtype=np.int32),
        loss_mask=np.array([1, 1, 0, 0, 0], dtype=np.int8),
        seq_start_id=np.array([0, 3, 4], dtype=np.int32),
    )
    write_shard(tmp_path / "shard.idx.parquet", [row], row_group_size=1)

    for multiple in (1, 2):
        collate_settings = _settings(multiple, packed_sequence_size=8)
        host = open_host_dataset(tmp_path, host_tokenizer, collate_settings)
        assert_same_batch(predict_batch([row], collate_settings), host.collate_fn([host[0]]))


@pytest.mark.parametrize("pad_to_max_length", [False, True])
@pytest.mark.parametrize("multiple", [1, 4])
def test_rows_the_host_stops_on(tmp_path: Path, host_tokenizer: Any, multiple: int, pad_to_max_length: bool) -> None:
    rows = random_rows(4, num_rows=2, packed_sequence_size=64, pad_seq_to_mult=multiple)
    write_shard(tmp_path / "shard.idx.parquet", rows, row_group_size=1)
    collate_settings = _settings(multiple, pad_to_max_length=pad_to_max_length, packed_sequence_size=60)
    host = open_host_dataset(tmp_path, host_tokenizer, collate_settings)

    with pytest.raises(AssertionError):
        host.collate_fn([host[0]])
    with pytest.raises(ArtifactError, match="64 runtime tokens; packed_sequence_size is 60"):
        predict_batch(rows[:1], collate_settings)


@st.composite
def _drawn_rows(draw: st.DrawFn) -> tuple[list[PackedRow], int, int]:
    multiple = draw(st.sampled_from([1, 2, 4, 8, 16]))
    packed_sequence_size = multiple * draw(st.integers(1, 12))
    row = packed_rows(packed_sequence_size=packed_sequence_size, pad_seq_to_mult=multiple)
    return draw(st.lists(row, min_size=1, max_size=5)), packed_sequence_size, multiple


@examples(2)
@given(drawn=_drawn_rows(), padding=st.sampled_from(PADDINGS), pad_seq_length_to_mult=st.integers(1, 128))
def test_any_valid_rows(
    host_tokenizer: Any,
    drawn: tuple[list[PackedRow], int, int],
    padding: tuple[bool, bool],
    pad_seq_length_to_mult: int,
) -> None:
    rows, packed_sequence_size, multiple = drawn
    collate_settings = _settings(
        multiple,
        packed_sequence_size=packed_sequence_size,
        pad_to_max_length=padding[0],
        pad_cu_seqlens=padding[1],
        pad_seq_length_to_mult=pad_seq_length_to_mult,
        metadata=CollateMetadata.from_entries([_entry(rows)]),
    )
    with tempfile.TemporaryDirectory() as directory:
        shard, metadata_path = Path(directory) / "shard.idx.parquet", Path(directory) / BRIDGE_METADATA_FILE
        write_shard(shard, rows, row_group_size=2)
        write_bridge_metadata(metadata_path, [_entry(rows)])
        host = open_host_dataset(shard, host_tokenizer, collate_settings, metadata_path=metadata_path)
        host_batch = host.collate_fn([host[index] for index in range(len(rows))])

    assert_same_batch(predict_batch(rows, collate_settings), host_batch)


@examples(2)
@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=200), packed_sequence_size=st.integers(100, 300))
def test_metadata_entry_is_the_host_s(lengths: list[int], packed_sequence_size: int) -> None:
    from megatron.bridge.data.packing.algorithms import create_packing_strategy

    histogram = np.bincount(lengths, minlength=packed_sequence_size + 1).tolist()
    packs, expected = create_packing_strategy(histogram, packed_sequence_size, "first_fit_decreasing")

    entry = bridge_metadata_entry(_statistics(packs), packed_sequence_size=packed_sequence_size)

    assert entry == expected
    assert list(entry) == list(expected)
