"""Mutations of an artifact's columns: missing, renamed, of other types. The manifest's checksums fit them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.artifact_mutations import IDS, MASK, STARTS, breaks_rows, rewrite_table

EOS = 2


def _column(folder: Path, name: str, element: Any, convert: Callable[[Any], Any]) -> None:
    """Store a column of `SHARD` as lists of another type."""

    def change(table: Any) -> Any:
        rows = [[convert(value) for value in row] for row in table.column(name).to_pylist()]
        position = table.schema.get_field_index(name)
        return table.set_column(position, name, pa.array(rows, type=pa.list_(element)))

    rewrite_table(folder, change)


@breaks_rows("BP301")
def input_ids_missing(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.drop_columns([IDS]))


@breaks_rows("BP301")
def loss_mask_missing(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.drop_columns([MASK]))


@breaks_rows("BP301")
def seq_start_id_missing(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.drop_columns([STARTS]))


@breaks_rows("BP301")
def column_renamed(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.rename_columns([IDS, "label_mask", STARTS]))


@breaks_rows("BP301")
def column_in_upper_case(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.rename_columns([IDS.upper(), MASK, STARTS]))


@breaks_rows("BP341")
def column_twice(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.append_column(IDS, table.column(IDS)))


@breaks_rows("BP301")
def table_without_columns(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.select([]).append_column("row", pa.array(range(table.num_rows))))


@breaks_rows("BP325")
def tokens_as_text(folder: Path) -> None:
    _column(folder, IDS, pa.string(), str)


@breaks_rows("BP325")
def tokens_as_float(folder: Path) -> None:
    _column(folder, IDS, pa.float32(), float)


@breaks_rows("BP325")
def tokens_as_lists_of_lists(folder: Path) -> None:
    _column(folder, IDS, pa.list_(pa.int32()), lambda token: [token])


@breaks_rows("BP325")
def tokens_as_bytes(folder: Path) -> None:
    def change(table: Any) -> Any:
        rows = [b"".join(token.to_bytes(4, "little") for token in row) for row in table.column(IDS).to_pylist()]
        return table.set_column(0, IDS, pa.array(rows, type=pa.binary()))

    rewrite_table(folder, change)


@breaks_rows("BP325")
def tokens_as_one_number(folder: Path) -> None:
    rewrite_table(folder, lambda table: table.set_column(0, IDS, pa.array(range(table.num_rows))))


@breaks_rows("BP325")
def tokens_of_the_null_type(folder: Path) -> None:
    _column(folder, IDS, pa.null(), lambda token: None)


@breaks_rows("BP325")
def starts_as_text(folder: Path) -> None:
    _column(folder, STARTS, pa.string(), str)


@breaks_rows("BP325")
def mask_as_text(folder: Path) -> None:
    _column(folder, MASK, pa.string(), str)


@breaks_rows("BP326")
def mask_as_float(folder: Path) -> None:
    _column(folder, MASK, pa.float32(), float)


@breaks_rows("BP326")
def mask_as_double(folder: Path) -> None:
    _column(folder, MASK, pa.float64(), float)


@breaks_rows("BP316")
def one_giant_row_group(folder: Path) -> None:
    rewrite_table(folder, lambda table: pa.concat_tables([table] * 80), row_group_size=1 << 20)


@breaks_rows("BP311")
def negative_tokens_as_unsigned(folder: Path) -> None:
    _column(folder, IDS, pa.uint32(), lambda token: 2**32 - 100 if token == EOS else token)
