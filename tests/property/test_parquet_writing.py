"""Whatever the rows and wherever they are cut, Arrow reads them back."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.shards import write as shard_writing
from bridgepack.data.shards.write import write_shard
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, RowBatch
from tests.support.examples import examples
from tests.support.packed_rows import SCHEMA

ROW_LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=40)


@examples(0.6)
@given(
    row_lengths=ROW_LENGTHS,
    start_lengths=ROW_LENGTHS,
    row_group_tokens=st.integers(1, 50),
    highest=st.sampled_from([1, 300, 2**31]),
    seed=st.integers(0, 2**32),
)
def test_what_is_written_is_read(
    row_lengths: list[int], start_lengths: list[int], row_group_tokens: int, highest: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    num_rows = min(len(row_lengths), len(start_lengths))
    tokens, starts = (np.cumsum([0, *lengths[:num_rows]]) for lengths in (row_lengths, start_lengths))
    batch = RowBatch(
        shard="s",
        first_row=0,
        input_ids=rng.integers(highest, size=tokens[-1]).astype(np.int32),
        token_offsets=tokens,
        loss_mask=rng.integers(2, size=tokens[-1]).astype(np.int8),
        mask_offsets=tokens,
        seq_start_id=rng.integers(highest, size=starts[-1]).astype(np.int32),
        start_offsets=starts,
    )
    columns = {
        INPUT_IDS: (batch.input_ids, tokens),
        LOSS_MASK: (batch.loss_mask, tokens),
        SEQ_START_ID: (batch.seq_start_id, starts),
    }
    expected = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), type=SCHEMA.field(name).type)
        for name, (values, offsets) in columns.items()
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writing, "ROW_GROUP_TOKENS", row_group_tokens)
        assert write_shard(Path(folder) / "s.parquet", iter([batch]), packed_sequence_size=1) == num_rows
        file = pq.ParquetFile(Path(folder) / "s.parquet")
        found, groups = file.read(), [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]

    assert groups == [min(row_group_tokens, num_rows - first) for first in range(0, num_rows, row_group_tokens)]
    assert found.equals(pa.Table.from_arrays(expected, schema=SCHEMA))
