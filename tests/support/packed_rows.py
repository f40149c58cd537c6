"""Valid packed rows, drawn and random, and Parquet shards of them in the artifact's layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from bridgepack.geometry import aligned_runtime_lengths
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, PackedRow
from bridgepack.records.sequences import RowNote, TokenBatch

EOS_TOKEN_ID = 2
#: Small, so that EOS is frequent as content too.
NUM_TOKEN_IDS = 12
ONLY_EOS_FRACTION = 0.1

SCHEMA = pa.schema(
    [(INPUT_IDS, pa.list_(pa.int32())), (LOSS_MASK, pa.list_(pa.int8())), (SEQ_START_ID, pa.list_(pa.int32()))]
)


@st.composite
def packed_rows(draw: st.DrawFn, *, packed_sequence_size: int, pad_seq_to_mult: int) -> PackedRow:
    """Draw a row that holds at least one sequence and fits; any sequence may be all EOS, any mask is possible."""
    content_lengths: list[int] = []
    space = packed_sequence_size
    while space >= pad_seq_to_mult and (not content_lengths or draw(st.booleans())):
        content_lengths.append(draw(st.integers(1, space // pad_seq_to_mult * pad_seq_to_mult)))
        space -= -(-content_lengths[-1] // pad_seq_to_mult) * pad_seq_to_mult
    seed = draw(st.integers(0, 2**32 - 1))
    return _row(np.random.default_rng(seed), content_lengths, pad_seq_to_mult)


def random_rows(seed: int, *, num_rows: int, packed_sequence_size: int, pad_seq_to_mult: int) -> list[PackedRow]:
    """Return rows that fit, from one sequence to as many as there is room for; the first row is full."""
    rng = np.random.default_rng(seed)
    rows = [_row(rng, [packed_sequence_size // 2] * 2, pad_seq_to_mult)]
    while len(rows) < num_rows:
        num_sequences = int(rng.integers(1, packed_sequence_size // pad_seq_to_mult + 1))
        longest = packed_sequence_size // num_sequences // pad_seq_to_mult * pad_seq_to_mult
        rows.append(_row(rng, rng.integers(1, longest + 1, size=num_sequences).tolist(), pad_seq_to_mult))
    return rows


def write_shard(path: Path, rows: Sequence[PackedRow], *, row_group_size: int) -> None:
    """Write the rows to one Parquet file: int32 ids and starts, int8 mask, small row groups, zstd."""
    columns = {
        INPUT_IDS: [row.input_ids for row in rows],
        LOSS_MASK: [row.loss_mask for row in rows],
        SEQ_START_ID: [row.seq_start_id for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns, schema=SCHEMA)
    pq.write_table(table, path, row_group_size=row_group_size, compression="zstd")


def write_shards(directory: Path, rows: Sequence[PackedRow], *, num_shards: int, row_group_size: int) -> None:
    """Write the rows to several files whose sorted names keep their order."""
    for index, positions in enumerate(np.array_split(np.arange(len(rows)), num_shards)):
        name = f"shard-{index:05d}-of-{num_shards:05d}.idx.parquet"
        write_shard(
            directory / name, [rows[position] for position in positions.tolist()], row_group_size=row_group_size
        )


def _row(rng: np.random.Generator, content_lengths: Sequence[int], pad_seq_to_mult: int) -> PackedRow:
    content = np.asarray(content_lengths, dtype=np.int64)
    stored_lengths = aligned_runtime_lengths(content, pad_seq_to_mult) + 1
    starts = np.concatenate(([0], np.cumsum(stored_lengths)[:-1]))
    position_in_sequence = np.arange(stored_lengths.sum()) - np.repeat(starts, stored_lengths)
    is_only_eos = rng.random(len(content)) < ONLY_EOS_FRACTION
    is_content = position_in_sequence <= np.repeat(np.where(is_only_eos, -1, content), stored_lengths)
    ids = np.where(is_content, rng.integers(0, NUM_TOKEN_IDS, size=len(is_content)), EOS_TOKEN_ID)
    return PackedRow(
        input_ids=ids.astype(np.int32),
        loss_mask=rng.integers(0, 2, size=len(ids)).astype(np.int8),
        seq_start_id=starts.astype(np.int32),
    )


def token_batch(
    sequences: Sequence[tuple[list[int], list[int]]],
    *,
    first_row: int = 0,
    drops: Sequence[RowNote] = (),
    num_blank_lines: int = 0,
) -> TokenBatch:
    """Return sequences, given as ids and token-aligned masks, as a stage of the build gives them."""
    return TokenBatch(
        input_ids=np.array([token for ids, _ in sequences for token in ids], dtype=np.int32),
        loss_mask=np.array([bit for _, mask in sequences for bit in mask], dtype=np.int8),
        offsets=np.cumsum([0, *(len(ids) for ids, _ in sequences)]),
        row_offsets=np.arange(first_row, first_row + len(sequences)),
        num_context=np.full(len(sequences), -1),
        drops=tuple(drops),
        losses=(),
        num_rows=len(sequences) + len(drops),
        num_blank_lines=num_blank_lines,
    )
