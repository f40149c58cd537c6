"""Reads Parquet shards: row groups as flat arrays, single rows, and footers; and shares memory of numpy and Arrow.

Some damaged footers make Arrow's C++ code abort instead of raising. A file that matches the manifest is opened
directly; any other file is first opened in a child process.

`pa.array` and `Array.to_numpy` import pandas if it is installed, which takes half a second.
"""

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.reading.inputs import file_stamp
from bridgepack.data.reading.remote import CloudPath, arrow_source
from bridgepack.errors import ArtifactError
from bridgepack.records import INPUT_IDS, LOSS_MASK, ROW_COLUMNS, PackedRow, RowBatch, ShardFacts

#: The end of a Parquet file after its footer: the footer's length and the marker that also begins the file.
_TAIL_BYTES, _MARK = 8, b"PAR1"
#: Reads every part of a footer that is used, and prints a line per file; Arrow's exceptions will occur again later.
_OPEN_FOOTERS = """
import resource, sys
import pyarrow.parquet as pq
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for path in sys.stdin.read().split("\\0"):
    try:
        with pq.ParquetFile(path) as file:
            file.schema_arrow
            for group in range(file.metadata.num_row_groups):
                file.metadata.row_group(group).to_dict()
    except Exception:
        pass
    print(flush=True)
"""


def iter_row_groups(
    path: Path, name: str, *, max_tokens: int, row_groups: range | None = None, first_row: int = 0
) -> Iterator[RowBatch]:
    """Yield the rows of a shard or of some consecutive row groups, in order, in batches of bounded memory.

    A batch has at most `max_tokens` stored tokens, or a single row; `first_row` is the 0-based index of the first row
    in the shard, which batches call `name`.

    Raises:
        ArtifactError: they cannot be read completely, or a row or an element is null.
    """
    try:
        footer = _footer(path, file_stamp(path))
        with pq.ParquetFile(arrow_source(path), memory_map=True, metadata=footer) as file:
            groups = list(range(footer.num_row_groups) if row_groups is None else row_groups)
            facts = [group for group in map(footer.row_group, groups) if group.num_rows]
            # The row group with the most tokens per row bounds the batches, which can span several row groups.
            num_rows = min((max_tokens * group.num_rows // max(_tokens_in(group), 1) for group in facts), default=1)
            for batch in file.iter_batches(max(num_rows, 1), groups, list(ROW_COLUMNS), use_threads=False):
                yield batch_of_table(pa.Table.from_batches([batch]), name, first_row)
                first_row += batch.num_rows
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{name} cannot be read from pack {first_row} on: {one_line(error)}.") from None


def batch_of_table(table: Any, name: str, first_row: int) -> RowBatch:
    """Return the rows of an Arrow table, without copying if Arrow's memory layout allows it.

    Raises:
        ArtifactError: a row or an element is null, or a column is not a list.
    """
    return row_batch(name, first_row, [_flat(table, column, name) for column in ROW_COLUMNS])


def row_batch(name: str, first_row: int, columns: Iterable[tuple[Any, Any]]) -> RowBatch:
    """Return rows from their ids, masks and starts, each given as (values, offsets)."""
    (ids, token_offsets), (mask, mask_offsets), (starts, start_offsets) = columns
    return RowBatch(
        shard=name,
        first_row=first_row,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=mask,
        mask_offsets=mask_offsets,
        seq_start_id=starts,
        start_offsets=start_offsets,
    )


def read_shard_rows(path: Path, name: str, positions: Iterable[int]) -> dict[int, PackedRow]:
    """Return some rows by their 0-based position in the shard, decoding only their row groups.

    Raises:
        ArtifactError: the shard cannot be read, does not have a row, or a column of one holds no numbers.
    """
    later_rows, group_rows, first, rows = sorted(positions), list[int](), 0, dict[int, PackedRow]()
    try:
        with pq.ParquetFile(arrow_source(path), memory_map=True) as file:
            for group in range(file.metadata.num_row_groups if later_rows else 0):
                stop = first + file.metadata.row_group(group).num_rows
                group_rows, later_rows = (
                    [row for row in later_rows if row < stop],
                    [row for row in later_rows if row >= stop],
                )
                if group_rows:
                    batch = batch_of_table(file.read_row_group(group, use_threads=False), name, first)
                    rows |= {row: _require_numbers(batch.row(row - first), name) for row in group_rows}
                first = stop
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        why = f"{name} pack {(group_rows or later_rows)[0]} cannot be read: {one_line(error).rstrip('.')}"
        raise ArtifactError(f"{why}. Build the artifact again.") from None
    if later_rows:
        raise ArtifactError(
            f"{name} has {first} packs, so pack {later_rows[-1]} does not exist. Build the artifact again."
        )
    return rows


def _require_numbers(row: PackedRow, name: str) -> PackedRow:
    """Return a row if its columns hold numbers; a mask of booleans does, as the host reads it."""
    for column in ROW_COLUMNS:
        kind, allowed_kind = getattr(row, column).dtype, "numbers" if column == LOSS_MASK else "whole numbers"
        if kind.kind not in ("iufb" if column == LOSS_MASK else "iu"):
            raise ArtifactError(f"{name}: column {column} holds {kind}; it must hold {allowed_kind}.")
    return row


def read_shard_facts(path: Path, name: str) -> ShardFacts:
    """Return facts from a shard's footer; a broken file is a fact, not an error."""
    if not path.is_file():
        return ShardFacts(path=name, exists=False)
    facts = ShardFacts(path=name, exists=True, num_bytes=path.stat().st_size)
    try:
        with pq.ParquetFile(arrow_source(path)) as file:
            metadata, schema = file.metadata, file.schema_arrow
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        return replace(
            facts,
            columns={field.name: str(field.type) for field in schema},
            num_rows=metadata.num_rows,
            row_group_rows=tuple(group.num_rows for group in groups),
            row_group_tokens=tuple(map(_tokens_in, groups)),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return replace(facts, read_error=one_line(error))


def _tokens_in(group: Any) -> int:
    """Return the stored tokens of a row group, from its footer."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.split(".")[0] == INPUT_IDS:
            return int(column.num_values)
    return 0


def one_line(error: BaseException) -> str:
    """Return an error's message in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@lru_cache(maxsize=1)
def _footer(path: Path, stamp: tuple[int, int]) -> Any:  # noqa: ARG001 (a changed file is read again)
    """Return a file's footer, cached because every part of a large shard needs all of it."""
    return pq.read_metadata(arrow_source(path))


def _flat(table: Any, column: str, name: str) -> tuple[Any, Any]:
    """Return (values, int64 offsets) of a list column as numpy arrays.

    Raises:
        ArtifactError: a row or an element is null, or the column is not a list.
    """
    array = table.column(column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise ArtifactError(f"{name}: column {column} is {array.type}; it must be a list.")
    offsets = numpy_array(array.offsets).astype(np.int64)
    # `array.flatten()` would import pyarrow.compute, which takes as long as checking millions of tokens.
    values = array.values[int(offsets[0]) : int(offsets[-1])]
    if array.null_count or values.null_count:
        raise ArtifactError(f"{name}: column {column} has a null, which Megatron-Bridge cannot read.")
    return numpy_array(values), offsets - offsets[0]


def why_not_openable(paths: Sequence[Path]) -> dict[Path, str]:
    """Return path -> how opening it crashes a process, for files that do; each crash starts another child process.

    Returns nothing if child processes cannot run at all.
    """
    with TemporaryDirectory(prefix="bridgepack-footers-") as folder:
        copies = [
            _copy_footer(path, Path(folder) / str(index)) if isinstance(path, CloudPath) else path
            for index, path in enumerate(paths)
        ]
        reasons = _crashes(copies)
    return {path: reasons[copy] for path, copy in zip(paths, copies, strict=True) if copy in reasons}


def _copy_footer(path: CloudPath, copy: Path) -> Path:
    """Return a local file of the size of one in an object store, with only its footer; the rest is a hole."""
    size = path.stat().st_size
    with copy.open("wb") as target, path.open("rb") as source:
        target.truncate(size)
        source.seek(max(size - _TAIL_BYTES, 0))
        tail = source.read(_TAIL_BYTES)
        is_parquet = tail.endswith(_MARK)
        length = _TAIL_BYTES + (int.from_bytes(tail[: -len(_MARK)], "little") if is_parquet else 0)
        for start, stop in ((0, min(len(_MARK), size)), (max(size - length, 0), size)):
            source.seek(start)
            target.seek(start)
            target.write(source.read(stop - start))
    return copy


def _crashes(paths: Sequence[Path]) -> dict[Path, str]:
    reasons: dict[Path, str] = {}
    waiting = list(paths)
    while waiting:
        names = "\0".join(map(str, waiting))
        child = subprocess.run(
            [sys.executable, "-P", "-c", _OPEN_FOOTERS], input=names, capture_output=True, text=True, check=False
        )
        num_opened = child.stdout.count("\n")
        if child.returncode >= 0 or num_opened == len(waiting):
            break
        name, message = signal.Signals(-child.returncode).name, " ".join(child.stderr.split())[:200]
        reasons[waiting[num_opened]] = f"opening it crashes the process with {name}" + (
            f": {message}" if message else ""
        )
        waiting = waiting[num_opened + 1 :]
    return reasons


def arrow_array(values: npt.NDArray[Any]) -> Any:
    """Return a one-dimensional numpy array of numbers or booleans as an Arrow array; does not copy numbers."""
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    array = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, pa.py_buffer(array)])


def arrow_lists(values: npt.NDArray[Any], offsets: npt.NDArray[np.integer[Any]], kind: Any) -> Any:
    """Return lists of numbers as an Arrow array, without reading their elements.

    Args:
        values: shape [num_values], the elements of all lists, concatenated.
        offsets: shape [num_lists + 1]: list `i` has `values[offsets[i]:offsets[i + 1]]`.
        kind: Arrow type of the lists.
    """
    elements = arrow_array(values.astype(kind.value_type.to_pandas_dtype(), copy=False))
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, ends], children=[elements])


def arrow_text(text: str) -> Any:
    """Return one text as an Arrow array."""
    content = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(content)], np.int32)), pa.py_buffer(content))


def numpy_array(values: Any) -> npt.NDArray[Any]:
    """Return an Arrow array without nulls as a numpy array; does not copy integers and floats."""
    kind = values.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not len(values):
        return np.empty(0, dtype=kind.to_pandas_dtype())
    if not is_number or values.null_count:
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array
    buffer = np.frombuffer(values.buffers()[1], dtype=kind.to_pandas_dtype(), count=values.offset + len(values))
    return buffer[values.offset :]
