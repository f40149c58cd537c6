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


input_ids_missing = breaks_rows("BP301")(lambda folder: rewrite_table(folder, lambda table: table.drop_columns([IDS])))
loss_mask_missing = breaks_rows("BP301")(lambda folder: rewrite_table(folder, lambda table: table.drop_columns([MASK])))
seq_start_id_missing = breaks_rows("BP301")(
    lambda folder: rewrite_table(folder, lambda table: table.drop_columns([STARTS]))
)
column_renamed = breaks_rows("BP301")(
    lambda folder: rewrite_table(folder, lambda table: table.rename_columns([IDS, "label_mask", STARTS]))
)
column_in_upper_case = breaks_rows("BP301")(
    lambda folder: rewrite_table(folder, lambda table: table.rename_columns([IDS.upper(), MASK, STARTS]))
)
column_twice = breaks_rows("BP341")(
    lambda folder: rewrite_table(folder, lambda table: table.append_column(IDS, table.column(IDS)))
)
table_without_columns = breaks_rows("BP301")(
    lambda folder: rewrite_table(
        folder, lambda table: table.select([]).append_column("row", pa.array(range(table.num_rows)))
    )
)
tokens_as_text = breaks_rows("BP325")(lambda folder: _column(folder, IDS, pa.string(), str))
tokens_as_float = breaks_rows("BP325")(lambda folder: _column(folder, IDS, pa.float32(), float))
tokens_as_lists_of_lists = breaks_rows("BP325")(
    lambda folder: _column(folder, IDS, pa.list_(pa.int32()), lambda token: [token])
)


@breaks_rows("BP325")
def tokens_as_bytes(folder: Path) -> None:
    def change(table: Any) -> Any:
        rows = [b"".join(token.to_bytes(4, "little") for token in row) for row in table.column(IDS).to_pylist()]
        return table.set_column(0, IDS, pa.array(rows, type=pa.binary()))

    rewrite_table(folder, change)


tokens_as_one_number = breaks_rows("BP325")(
    lambda folder: rewrite_table(folder, lambda table: table.set_column(0, IDS, pa.array(range(table.num_rows))))
)
tokens_of_the_null_type = breaks_rows("BP325")(lambda folder: _column(folder, IDS, pa.null(), lambda token: None))
starts_as_text = breaks_rows("BP325")(lambda folder: _column(folder, STARTS, pa.string(), str))
mask_as_text = breaks_rows("BP325")(lambda folder: _column(folder, MASK, pa.string(), str))
mask_as_float = breaks_rows("BP326")(lambda folder: _column(folder, MASK, pa.float32(), float))
mask_as_double = breaks_rows("BP326")(lambda folder: _column(folder, MASK, pa.float64(), float))
one_giant_row_group = breaks_rows("BP316")(
    lambda folder: rewrite_table(folder, lambda table: pa.concat_tables([table] * 80), row_group_size=1 << 20)
)
negative_tokens_as_unsigned = breaks_rows("BP311")(
    lambda folder: _column(folder, IDS, pa.uint32(), lambda token: 2**32 - 100 if token == EOS else token)
)
