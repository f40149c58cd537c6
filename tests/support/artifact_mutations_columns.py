"""Mutations of an artifact's columns: missing, renamed, of other types. The manifest's checksums fit them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.support.artifact_mutations import IDS, MASK, STARTS, Mutation, breaks_rows, rewrite_table

EOS = 2


def _table(code: str, change: Callable[[Any], Any], **fields: Any) -> Mutation:
    """Return a mutation of `SHARD` as an Arrow table."""
    return breaks_rows(code)(lambda folder: rewrite_table(folder, change, **fields))


def _column(code: str, name: str, element: Any, convert: Callable[[Any], Any]) -> Mutation:
    """Return a mutation that stores a column of `SHARD` as lists of another type."""

    def change(table: Any) -> Any:
        rows = [[convert(value) for value in row] for row in table.column(name).to_pylist()]
        position = table.schema.get_field_index(name)
        return table.set_column(position, name, pa.array(rows, type=pa.list_(element)))

    return _table(code, change)


def _as_bytes(table: Any) -> Any:
    rows = [b"".join(token.to_bytes(4, "little") for token in row) for row in table.column(IDS).to_pylist()]
    return table.set_column(0, IDS, pa.array(rows, type=pa.binary()))


input_ids_missing = _table("BP301", lambda table: table.drop_columns([IDS]))
loss_mask_missing = _table("BP301", lambda table: table.drop_columns([MASK]))
seq_start_id_missing = _table("BP301", lambda table: table.drop_columns([STARTS]))
column_renamed = _table("BP301", lambda table: table.rename_columns([IDS, "label_mask", STARTS]))
column_in_upper_case = _table("BP301", lambda table: table.rename_columns([IDS.upper(), MASK, STARTS]))
column_twice = _table("BP341", lambda table: table.append_column(IDS, table.column(IDS)))
table_without_columns = _table(
    "BP301", lambda table: table.select([]).append_column("row", pa.array(range(table.num_rows)))
)
tokens_as_text = _column("BP325", IDS, pa.string(), str)
tokens_as_float = _column("BP325", IDS, pa.float32(), float)
tokens_as_lists_of_lists = _column("BP325", IDS, pa.list_(pa.int32()), lambda token: [token])
tokens_as_bytes = _table("BP325", _as_bytes)
tokens_as_one_number = _table("BP325", lambda table: table.set_column(0, IDS, pa.array(range(table.num_rows))))
tokens_of_the_null_type = _column("BP325", IDS, pa.null(), lambda token: None)
starts_as_text = _column("BP325", STARTS, pa.string(), str)
mask_as_text = _column("BP325", MASK, pa.string(), str)
mask_as_float = _column("BP326", MASK, pa.float32(), float)
mask_as_double = _column("BP326", MASK, pa.float64(), float)
one_giant_row_group = _table("BP316", lambda table: pa.concat_tables([table] * 80), row_group_size=1 << 20)
negative_tokens_as_unsigned = _column("BP311", IDS, pa.uint32(), lambda token: 2**32 - 100 if token == EOS else token)
