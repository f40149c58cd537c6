"""Parquet files with the losses of rows: the parts that a run's ranks write, and the table that is made of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from bridgepack.data.files import make_folders, replaced_when_whole
from bridgepack.data.shards.row_groups import arrow_lists, numpy_array
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import SPLITS
from bridgepack.records.losses import RowsPart

#: Key of a file's metadata with its `RowsPart`, as JSON.
_METADATA = b"bridgepack.rows"
_LOSS_SUMS, _NUM_TRAINED = "loss_sums", "num_trained_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatches:
    """Micro batches with the losses of their sequences; arrays have shape [num_micro_batches] unless they say else."""

    split: IntArray  #: index in `SPLITS`
    step: IntArray  #: as the host logs it
    evaluation: IntArray  #: which of its start, from 1; 0 in training
    pack: IntArray
    sizes: IntArray  #: number of sequences
    loss_sums: npt.NDArray[np.float64]  #: of each sequence, one micro batch after the other
    num_trained_tokens: IntArray  #: of each sequence

    @classmethod
    def of(cls, places: Iterable[tuple[str, int, int, int]], values: Sequence[npt.NDArray[np.float64]]) -> Self:
        """Return micro batches from (split, step, evaluation, pack) and [num_sequences, 2], loss and trained tokens."""
        rows = [(SPLITS.index(split), *numbers_of_place) for split, *numbers_of_place in places]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        sums = np.concatenate([np.empty((0, 2)), *values])
        return cls(
            split=columns[0],
            step=columns[1],
            evaluation=columns[2],
            pack=columns[3],
            sizes=np.array([len(item) for item in values], dtype=np.int64),
            loss_sums=sums[:, 0],
            num_trained_tokens=sums[:, 1].round().astype(np.int64),
        )


def write_part(path: Path, part: RowsPart, batches: MicroBatches) -> None:
    """Write a part of a rank, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    offsets = np.concatenate(([0], np.cumsum(batches.sizes)))
    columns = {name: getattr(batches, name).astype(np.int32) for name in ("split", "step", "evaluation", "pack")}
    lists = {
        name: arrow_lists(getattr(batches, name), offsets, pa.list_(kind))
        for name, kind in ((_LOSS_SUMS, pa.float32()), (_NUM_TRAINED, pa.int32()))
    }
    table = pa.table({**columns, **lists}).replace_schema_metadata({_METADATA: json.dumps(asdict(part)).encode()})
    make_folders(path.parent)
    with replaced_when_whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_part_facts(path: Path) -> RowsPart:
    """Return what a part says of itself; raises DataError if it cannot be read."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        part: RowsPart = TypeAdapter(RowsPart).validate_python(json.loads(metadata[_METADATA]))
    except (pa.ArrowException, OSError, ValueError, KeyError, ValidationError) as error:
        raise _unreadable(path, error) from None
    return part


def read_part(path: Path) -> MicroBatches:
    """Return the micro batches of a part; raises DataError if it cannot be read."""
    try:
        table = pq.read_table(path)
        columns = {
            name: numpy_array(table[name].combine_chunks()).astype(np.int64)
            for name in ("split", "step", "evaluation", "pack")
        }
        sizes = numpy_array(pc.list_value_length(table[_LOSS_SUMS]).combine_chunks()).astype(np.int64)
        sums, counts = (
            numpy_array(pc.list_flatten(table[name]).combine_chunks()) for name in (_LOSS_SUMS, _NUM_TRAINED)
        )
    except (pa.ArrowException, OSError, LookupError) as error:
        raise _unreadable(path, error) from None
    return MicroBatches(
        **columns, sizes=sizes, loss_sums=sums.astype(np.float64), num_trained_tokens=counts.astype(np.int64)
    )


def write_row_table(path: Path, columns: Mapping[str, npt.NDArray[Any]]) -> Path:
    """Write a table of rows as Parquet and return its path.

    Raises:
        OSError: it cannot be written.
    """
    arrays = {
        name: pa.array(values.tolist(), pa.string()) if values.dtype == object else pa.array(values)
        for name, values in columns.items()
    }
    with replaced_when_whole(path) as temporary:
        pq.write_table(pa.table(arrays), temporary, compression="zstd")
    return path


def _unreadable(path: Path, error: BaseException) -> DataError:
    reason = " ".join(str(error).split())[:200]
    return DataError(f"{path} cannot be read: {reason}. Remove it; the other steps can still be read.")
