"""Opens Parquet and Arrow files, and reads their rows in batches."""

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

from bridgepack.data.reading.inputs import InputFile, file_stamp
from bridgepack.data.reading.remote import CloudFile
from bridgepack.errors import DataError

#: Bytes of a column read at a time, so that a row group is streamed and never held in memory.
_BUFFER_BYTES = 1 << 20


def parquet_file(file: InputFile) -> Any:
    """Return an open Parquet file.

    Raises:
        DataError: it is not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = file.path.open("rb") if isinstance(file.path, CloudFile) else file.path
        return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not a Parquet file: {str(error).rstrip('.')}. Write it again.") from None


def arrow_table(file: InputFile) -> Any:
    """Return a file's rows, memory-mapped; reads Arrow's file format and the stream format that `datasets` writes.

    Raises:
        DataError: it is in neither format.
    """
    import pyarrow as pa

    try:
        source = pa.memory_map(str(file.path))
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not an Arrow file: {str(error).rstrip('.')}. Write it again.") from None


class ParquetCursor:
    """Reads rows of Parquet files; reading on in the same file does not decode a row group twice."""

    def __init__(self) -> None:
        self._key: Any = None
        self._batches: Iterator[Any] = iter(())
        self._rest: Any = None
        self._position = self._max_rows = 0
        self._group_starts: list[int] = []

    def batches(self, file: InputFile, start: int, stop: int, *, max_rows: int) -> Iterator[Any]:
        """Yield record batches of rows `start` (0-based) to `stop - 1`, in order, at most `max_rows` each.

        Raises:
            DataError: a row group cannot be read.
        """
        key = (str(file.path), file_stamp(file.path))
        if key != self._key or start < self._position or max_rows < self._max_rows:
            self._open(file, start, max_rows)
            self._key, self._max_rows = key, max_rows
        while self._position < stop:
            batch = self._rest if self._rest is not None else self._next(file)
            first, last = max(start - self._position, 0), min(stop - self._position, batch.num_rows)
            self._rest = batch.slice(last) if last < batch.num_rows else None
            self._position += last
            if first < last:
                yield batch.slice(first, last - first)

    def _open(self, file: InputFile, start: int, max_rows: int) -> None:
        parquet = parquet_file(file)
        num_groups = parquet.metadata.num_row_groups
        counts = (parquet.metadata.row_group(index).num_rows for index in range(num_groups))
        self._group_starts = [*accumulate(counts, initial=0)]
        group = self._group_of(start)
        self._position, self._rest = self._group_starts[group], None
        self._batches = parquet.iter_batches(batch_size=max_rows, row_groups=range(group, num_groups))

    def _group_of(self, row: int) -> int:
        return max(bisect_right(self._group_starts, row) - 1, 0)

    def _next(self, file: InputFile) -> Any:
        import pyarrow as pa

        key, self._key = self._key, None  # after an error the file is opened again
        try:
            batch = next(self._batches)
        except (pa.ArrowException, OSError, StopIteration) as error:
            group, reason = self._group_of(self._position), str(error) or "it ends early"
            raise DataError(f"{file.label}: row group {group} cannot be read: {reason}. Write it again.") from None
        self._key = key
        return batch


@lru_cache(maxsize=1)
def parquet_cursor() -> ParquetCursor:
    """Return the cursor of this process."""
    return ParquetCursor()
