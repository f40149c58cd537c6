"""Writes packed rows as a Parquet file, row group after row group; what reads Parquet reads it.

Twice as fast as Arrow's writer: `parquet_columns` says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt
import zstandard

from bridgepack.data.shards.parquet_columns import ColumnChunk, ListColumn, Page, pages_of
from bridgepack.data.shards.thrift import Value, i32, i64, list_of, struct, text
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, RowBatch

_MAGIC = b"PAR1"
_PARQUET_VERSION = 2
#: Says who wrote the file; no version, so that the same rows give the same bytes.
_WRITER = "bridgepack"
_IDS, _MASK, _STARTS = (
    ListColumn(name=INPUT_IDS),
    ListColumn(name=LOSS_MASK, is_flag=True),
    ListColumn(name=SEQ_START_ID),
)
#: On token ids, lower levels are hardly faster and the files larger; higher ones are slower and the files as large.
_LEVEL = 1


class RowGroupWriter:
    """Appends row groups to a Parquet file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self._position = 0
        self._groups: list[Value] = []
        self._num_rows = 0
        self._put(_MAGIC)

    @property
    def num_rows(self) -> int:
        """Rows written."""
        return self._num_rows

    def add(self, batch: RowBatch, *, rows_per_group: int) -> None:
        """Write rows, as many to a row group; the last row group may have fewer."""
        for first in range(0, batch.num_rows, rows_per_group):
            self._add_group(batch, first, min(first + rows_per_group, batch.num_rows))

    def finish(self) -> None:
        """Write the footer; the file is whole afterwards."""
        columns = (_IDS, _MASK, _STARTS)
        root = struct({4: text("schema"), 5: i32(len(columns))})
        schema = [root, *(element for column in columns for element in column.schema())]
        fields = {1: i32(_PARQUET_VERSION), 2: list_of(schema), 3: i64(self._num_rows), 4: list_of(self._groups)}
        _, footer = struct({**fields, 6: text(_WRITER)})
        self._put(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _add_group(self, batch: RowBatch, first: int, stop: int) -> None:
        begin = self._position
        rows = slice(first, stop + 1)
        tokens, masks, starts = batch.token_offsets[rows], batch.mask_offsets[rows], batch.start_offsets[rows]
        pages = pages_of(tokens)
        mask_pages = pages if batch.mask_offsets is batch.token_offsets else pages_of(masks)
        chunks = [
            self._put_chunk(_IDS, batch.input_ids[tokens[0] : tokens[-1]], pages),
            self._put_chunk(_MASK, batch.loss_mask[masks[0] : masks[-1]], mask_pages),
            self._put_chunk(_STARTS, batch.seq_start_id[starts[0] : starts[-1]], pages_of(starts)),
        ]
        num_raw = sum(chunk.num_raw_bytes for chunk in chunks)
        place = {5: i64(begin), 6: i64(self._position - begin)}
        columns = list_of([chunk.metadata for chunk in chunks])
        self._groups.append(struct({1: columns, 2: i64(num_raw), 3: i64(stop - first), **place}))
        self._num_rows += stop - first

    def _put_chunk(self, column: ListColumn, values: npt.NDArray[Any], pages: Sequence[Page]) -> ColumnChunk:
        chunk = column.chunk(values, pages, position=self._position, compress=self._compress)
        for part in chunk.parts:
            self._put(part)
        return chunk

    def _put(self, content: bytes) -> None:
        self._stream.write(content)
        self._position += len(content)


@contextmanager
def row_group_writer(path: Path) -> Iterator[RowGroupWriter]:
    """Give a writer of a new file, which is whole once the block ends without an error."""
    with path.open("wb") as stream:
        writer = RowGroupWriter(stream)
        yield writer
        writer.finish()
