"""Literal batches anyone can check by hand; tests/contract/test_collate.py compares with the real host."""

import numpy as np
import pytest

from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import PackedRow
from bridgepack.replay.collate import (
    CollateMetadata,
    CollateSettings,
    HostBatch,
    padding_row,
    predict_batch,
)

EOS = 2


def _row(input_ids: list[int], loss_mask: list[int], seq_start_id: list[int]) -> PackedRow:
    return PackedRow(
        input_ids=np.array(input_ids, dtype=np.int32),
        loss_mask=np.array(loss_mask, dtype=np.int8),
        seq_start_id=np.array(seq_start_id, dtype=np.int32),
    )


UNALIGNED = _row([5, 6, 7, 8, 2, 5, 6, 9, 2], [0, 1, 1, 1, 0, 0, 1, 1, 0], [0, 5])
ALIGNED_TO_4 = _row([5, 6, 7, 8, 2, 5, 6, 9, 2, 2], [0, 1, 1, 1, 0, 0, 1, 1, 0, 0], [0, 5])
ONE_SEQUENCE = _row([9, 8, 7, 6, 2], [0, 0, 1, 1, 0], [0])


def _settings(**changes: object) -> CollateSettings:
    values: dict[str, object] = {
        "packed_sequence_size": 16,
        "pad_seq_to_mult": 1,
        "eos_token_id": EOS,
        "pad_to_max_length": True,
    }
    return CollateSettings(**(values | changes))  # type: ignore[arg-type]


def test_unaligned_row_has_one_offset_array_whose_last_segment_is_the_tail() -> None:
    batch = predict_batch([UNALIGNED], _settings())

    assert batch.tokens.tolist() == [[5, 6, 7, 8, 5, 6, 9] + [EOS] * 9]
    assert batch.labels.tolist() == [[6, 7, 8, 2, 6, 9, 2] + [EOS] * 9]
    assert batch.loss_mask.tolist() == [[0, 1, 1, 1, 0, 1, 1] + [0] * 9]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2] + [0] * 9]
    assert batch.cu_seqlens.tolist() == [[0, 4, 7, 16]]
    assert batch.cu_seqlens_padded is None
    assert batch.max_seqlen.tolist() == [[9]]
    assert batch.token_count.tolist() == [7]


def test_aligned_row_has_logical_and_physical_offsets() -> None:
    batch = predict_batch([ALIGNED_TO_4], _settings(pad_seq_to_mult=4))

    assert batch.tokens.tolist() == [[5, 6, 7, 8, 5, 6, 9, 2] + [EOS] * 8]
    assert batch.labels.tolist() == [[6, 7, 8, 2, 6, 9, 2, 2] + [EOS] * 8]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3] + [0] * 8]
    assert batch.cu_seqlens.tolist() == [[0, 4, 7, 7]]
    assert batch.cu_seqlens_padded is not None
    assert batch.cu_seqlens_padded.tolist() == [[0, 4, 8, 16]]
    assert batch.max_seqlen.tolist() == [[8]]


def test_row_that_fills_the_width_has_no_tail() -> None:
    batch = predict_batch([ALIGNED_TO_4], _settings(pad_seq_to_mult=4, packed_sequence_size=8))

    assert batch.cu_seqlens.tolist() == [[0, 4, 7]]
    assert batch.physical_offsets.tolist() == [[0, 4, 8]]
    assert batch.max_seqlen.tolist() == [[4]]


def test_content_that_is_eos_is_stripped_only_at_a_sequence_s_end() -> None:
    row = _row([5, 2, 6, 2, 2, 2, 2, 2, 2, 2], [1] * 10, [0, 5])

    batch = predict_batch([row], _settings(pad_seq_to_mult=4))

    assert batch.cu_seqlens.tolist() == [[0, 3, 3, 3]]
    assert batch.physical_offsets.tolist() == [[0, 4, 8, 16]]


def test_eos_input_is_never_trained() -> None:
    row = _row([5, 2, 6, 7], [1, 1, 1, 1], [0])

    batch = predict_batch([row], _settings(packed_sequence_size=4))

    assert batch.tokens.tolist() == [[5, 2, 6, 2]]
    assert batch.loss_mask.tolist() == [[1, 0, 1, 0]]


def test_rows_with_fewer_boundaries_repeat_their_last_one() -> None:
    batch = predict_batch([ONE_SEQUENCE, ALIGNED_TO_4], _settings(pad_seq_to_mult=4))

    assert batch.cu_seqlens.tolist() == [[0, 4, 4, 4], [0, 4, 7, 7]]
    assert batch.physical_offsets.tolist() == [[0, 4, 16, 16], [0, 4, 8, 16]]
    assert batch.max_seqlen.tolist() == [[12], [8]]


@pytest.mark.parametrize(
    ("packed_sequence_size", "multiple", "width"), [(64, 16, 16), (64, 5, 10), (12, 16, 12), (64, 7, 7)]
)
def test_width_without_pad_to_max_length(packed_sequence_size: int, multiple: int, width: int) -> None:
    settings = _settings(
        packed_sequence_size=packed_sequence_size, pad_to_max_length=False, pad_seq_length_to_mult=multiple
    )

    batch = predict_batch([ONE_SEQUENCE, UNALIGNED], settings)

    assert batch.tokens.shape == (2, width)


def test_pad_cu_seqlens_gives_a_static_shape_and_a_constant_max_seqlen() -> None:
    metadata = CollateMetadata(max_samples_per_bin=4, dataset_max_seqlen=5, min_packed_seqlen=6)

    batch = predict_batch(
        [ONE_SEQUENCE, ALIGNED_TO_4], _settings(pad_seq_to_mult=4, pad_cu_seqlens=True, metadata=metadata)
    )

    assert batch.cu_seqlens.tolist() == [[0, 4, 4, 4, 4, 4], [0, 4, 7, 7, 7, 7]]
    assert batch.physical_offsets.tolist() == [[0, 4, 16, 16, 16, 16], [0, 4, 8, 16, 16, 16]]
    assert batch.max_seqlen.tolist() == [10, 10]


def test_longest_sequence_wins_over_the_widest_tail() -> None:
    metadata = CollateMetadata(max_samples_per_bin=1, dataset_max_seqlen=13, min_packed_seqlen=6)

    batch = predict_batch([ONE_SEQUENCE], _settings(pad_cu_seqlens=True, metadata=metadata))

    assert batch.max_seqlen.tolist() == [13]


def test_metadata_that_promises_too_few_sequences_leaves_the_shape_ragged() -> None:
    metadata = CollateMetadata(max_samples_per_bin=1, dataset_max_seqlen=4, min_packed_seqlen=8)

    batch = predict_batch([UNALIGNED], _settings(pad_cu_seqlens=True, metadata=metadata))

    assert batch.cu_seqlens.tolist() == [[0, 4, 7, 16]]


def test_collate_metadata_takes_the_extremes_over_splits() -> None:
    training = {"max_samples_per_bin": 7, "dataset_max_seqlen": 100, "min_packed_seqlen": 90}
    validation = {"max_samples_per_bin": 9, "dataset_max_seqlen": 80, "min_packed_seqlen": 12}

    assert CollateMetadata.from_entries([training, validation]) == CollateMetadata(
        max_samples_per_bin=9, dataset_max_seqlen=100, min_packed_seqlen=12
    )


def test_metadata_without_pad_cu_seqlens_changes_nothing() -> None:
    metadata = CollateMetadata(max_samples_per_bin=9, dataset_max_seqlen=100, min_packed_seqlen=1)

    batch = predict_batch([UNALIGNED], _settings(metadata=metadata))

    assert batch.cu_seqlens.shape == (1, 4)
    assert batch.max_seqlen.tolist() == [[9]]


def test_padding_row_trains_nothing() -> None:
    batch = predict_batch([padding_row(UNALIGNED)], _settings())

    assert batch.tokens.tolist() == predict_batch([UNALIGNED], _settings()).tokens.tolist()
    assert not batch.loss_mask.any()


def test_sequence_of_one_stored_token_has_no_runtime_token() -> None:
    row = _row([5, 6, 7, 8], [1, 1, 0, 0], [0, 3])

    batch = predict_batch([row], _settings(packed_sequence_size=4))

    assert batch.tokens.tolist() == [[5, 6, 2, 2]]
    assert batch.cu_seqlens.tolist() == [[0, 2, 2, 4]]


def test_dtypes_are_the_host_s() -> None:
    batch: HostBatch = predict_batch([ALIGNED_TO_4], _settings(pad_seq_to_mult=4))

    assert {batch.tokens.dtype, batch.labels.dtype, batch.loss_mask.dtype, batch.position_ids.dtype} == {
        np.dtype(np.int64)
    }
    assert {batch.cu_seqlens.dtype, batch.physical_offsets.dtype, batch.max_seqlen.dtype} == {np.dtype(np.int32)}


def test_row_wider_than_packed_sequence_size_is_rejected() -> None:
    with pytest.raises(ArtifactError, match="row 1 of the batch: 7 runtime tokens; packed_sequence_size is 6"):
        predict_batch([ONE_SEQUENCE, UNALIGNED], _settings(packed_sequence_size=6))


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
