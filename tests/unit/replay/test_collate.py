"""Batches by hand, and those that cannot be collated or cut; tests/contract compares the others with the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.host import TARGET
from bridgepack.host.v07 import V07
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings, predict_batch
from bridgepack.replay.slicing import thd_positions


def _row(input_ids: list[int], loss_mask: list[int], seq_start_id: list[int]) -> PackedRow:
    return PackedRow(
        input_ids=np.array(input_ids, dtype=np.int32),
        loss_mask=np.array(loss_mask, dtype=np.int8),
        seq_start_id=np.array(seq_start_id, dtype=np.int32),
    )


def _settings(**changes: Any) -> CollateSettings:
    sizes = {
        "release": TARGET,
        "packed_sequence_size": 16,
        "pad_seq_to_mult": 1,
        "eos_token_id": 2,
        "pad_to_max_length": True,
    }
    return CollateSettings(**(sizes | changes))


TWO_SEQUENCES = _row([5, 6, 7, 8, 2, 5, 6, 9, 2], [0, 1, 1, 1, 0, 0, 1, 1, 0], [0, 5])


def test_a_batch_by_hand() -> None:
    batch = predict_batch([TWO_SEQUENCES], _settings(packed_sequence_size=10))

    assert batch.tokens.tolist() == [[5, 6, 7, 8, 5, 6, 9, 2, 2, 2]]
    assert batch.labels.tolist() == [[6, 7, 8, 2, 6, 9, 2, 2, 2, 2]]
    assert batch.loss_mask.tolist() == [[0, 1, 1, 1, 0, 1, 1, 0, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0, 0, 0]]
    assert batch.cu_seqlens.tolist() == [[0, 4, 7, 10]]
    assert batch.max_seqlen.tolist() == [[4]]
    assert (batch.cu_seqlens_padded, batch.padding_mask) == (None, None)
    padding = predict_batch([TWO_SEQUENCES], _settings(packed_sequence_size=10, release=V07)).padding_mask
    assert padding is not None
    assert padding.tolist() == [[False] * 7 + [True] * 3]


def test_an_aligned_batch_by_hand() -> None:
    row = _row([5, 6, 2, 2, 2, 7, 8, 9, 2, 2], [0, 1, 0, 0, 0, 0, 1, 1, 0, 0], [0, 5])

    batch = predict_batch([row], _settings(packed_sequence_size=12, pad_seq_to_mult=4, release=V07))

    assert batch.tokens.tolist() == [[5, 6, 2, 2, 7, 8, 9, 2, 2, 2, 2, 2]]
    assert batch.cu_seqlens.tolist() == [[0, 2, 5, 5]]
    assert batch.physical_offsets.tolist() == [[0, 4, 8, 12]]
    assert batch.padding_mask is not None
    assert np.flatnonzero(batch.padding_mask[0]).tolist() == [2, 3, 7, 8, 9, 10, 11]


def test_the_longest_tail_counts_in_a_static_shape() -> None:
    metadata = CollateMetadata(max_samples_per_bin=3, dataset_max_seqlen=4, min_packed_seqlen=4)

    batch = predict_batch([TWO_SEQUENCES], _settings(packed_sequence_size=10, pad_cu_seqlens=True, metadata=metadata))

    assert batch.max_seqlen.tolist() == [6]
    assert batch.cu_seqlens.tolist() == [[0, 4, 7, 10, 10]]


@pytest.mark.parametrize("seq_start_id", [[], [1, 5], [0, 5, 5], [0, 9], [0, 10], [0, 5, 3]])
def test_malformed_starts_are_rejected(seq_start_id: list[int]) -> None:
    row = _row([5, 6, 7, 8, 2, 5, 6, 9, 2], [0, 1, 1, 1, 0, 0, 1, 1, 0], seq_start_id)

    with pytest.raises(ArtifactError, match=r"seq_start_id has .* must begin with 0, ascend"):
        predict_batch([row], _settings())


METADATA = CollateMetadata(max_samples_per_bin=1, dataset_max_seqlen=4, min_packed_seqlen=4)
PADDED = {"pad_cu_seqlens": True, "metadata": METADATA, "pad_to_max_length": False}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict_batch([_row([5, 6, 7, 2], [0, 1, 0], [0])], _settings()), "mask has 3 entries for 4 stored t"),
        (lambda: predict_batch([], _settings()), "rows is empty"),
        (lambda: _settings(pad_cu_seqlens=True), "metadata is None with pad_cu_seqlens true"),
        (lambda: _settings(**PADDED), "pad_to_max_length is false with pad_cu_seqlens true"),
        (lambda: thd_positions([0], 4, 2), "cu_seqlens has 1 entries; allowed: at least 2"),
        (lambda: thd_positions([0, 4], 4, 0), "context_parallel_size is 0; allowed: whole numbers from 1"),
    ],
)
def test_what_cannot_be_collated_or_cut(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ArtifactError, ConfigError), match=message):
        call()
