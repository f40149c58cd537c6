"""Opens Parquet and Arrow files."""

from __future__ import annotations

from typing import Any

from bridgepack.data.cloud import CloudFile
from bridgepack.data.inputs import InputFile
from bridgepack.errors import DataError

#: Bytes of a column read at a time, so that a row group streams by and is never held.
_BUFFER_BYTES = 1 << 20


def parquet_file(file: InputFile) -> Any:
    """Return a Parquet file, open.

    Raises:
        DataError: when it is none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = file.path.open("rb") if isinstance(file.path, CloudFile) else file.path
        return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not a Parquet file: {error}. Write it again.") from None


def arrow_table(file: InputFile) -> Any:
    """Return a file's rows, memory-mapped: Arrow's file format, or the stream format that `datasets` writes.

    Raises:
        DataError: when it is neither.
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
        raise DataError(f"{file.label} is not an Arrow file: {error}. Write it again.") from None
