"""Batches that cannot be collated or cut; tests/contract/test_collate.py and test_slicing.py compare the others."""

import numpy as np
import pytest

from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings, predict_batch
from bridgepack.replay.slicing import thd_positions

EOS = 2


def _row(input_ids: list[int], loss_mask: list[int], seq_start_id: list[int]) -> PackedRow:
    return PackedRow(
        input_ids=np.array(input_ids, dtype=np.int32),
        loss_mask=np.array(loss_mask, dtype=np.int8),
        seq_start_id=np.array(seq_start_id, dtype=np.int32),
    )


UNALIGNED = _row([5, 6, 7, 8, 2, 5, 6, 9, 2], [0, 1, 1, 1, 0, 0, 1, 1, 0], [0, 5])


def _settings(**changes: object) -> CollateSettings:
    values: dict[str, object] = {
        "packed_sequence_size": 16,
        "pad_seq_to_mult": 1,
        "eos_token_id": EOS,
        "pad_to_max_length": True,
    }
    return CollateSettings(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("seq_start_id", [[], [1, 5], [0, 5, 5], [0, 9], [0, 10], [0, 5, 3]])
def test_malformed_starts_are_rejected(seq_start_id: list[int]) -> None:
    row = _row(UNALIGNED.input_ids.tolist(), UNALIGNED.loss_mask.tolist(), seq_start_id)

    with pytest.raises(ArtifactError, match=r"seq_start_id has .* must begin with 0, ascend"):
        predict_batch([row], _settings())


def test_loss_mask_of_another_length_is_rejected() -> None:
    with pytest.raises(ArtifactError, match="loss_mask has 3 entries for 4 stored tokens"):
        predict_batch([_row([5, 6, 7, 2], [0, 1, 0], [0])], _settings())


def test_batch_without_rows_is_rejected() -> None:
    with pytest.raises(ArtifactError, match="rows is empty"):
        predict_batch([], _settings())


def test_pad_cu_seqlens_needs_metadata_and_pad_to_max_length() -> None:
    metadata = CollateMetadata(max_samples_per_bin=1, dataset_max_seqlen=4, min_packed_seqlen=4)

    with pytest.raises(ConfigError, match="metadata is None with pad_cu_seqlens true"):
        _settings(pad_cu_seqlens=True)
    with pytest.raises(ConfigError, match="pad_to_max_length is false with pad_cu_seqlens true"):
        _settings(pad_cu_seqlens=True, metadata=metadata, pad_to_max_length=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: thd_positions([0], 4, 2), "cu_seqlens has 1 entries; allowed: at least 2"),
        (lambda: thd_positions([0, 4], 4, 0), "context_parallel_size is 0; allowed: whole numbers from 1"),
    ],
)
def test_what_cannot_be_cut(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]
