"""What a mutation of a built artifact is, and how one edits the artifact's files on disk.

Mutations of files leave the manifest as it is: the checksums give them away. Mutations of rows go through
`rewrite_rows` or `rewrite_table`, which put the new size, checksum and number of rows into the manifest, so that only a
rule on what the rows hold can tell.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.artifact.manifest import manifest_text
from bridgepack.data.reading.inputs import hash_file
from tests.support.packed_rows import SCHEMA

#: One pack: column name -> values.
Row = dict[str, Any]

#: Stands in every base artifact, and is what mutations break where they need not break another one.
SHARD = "training/shard-00001-of-00003.idx.parquet"
OTHER_SHARD = "training/shard-00002-of-00003.idx.parquet"
VALIDATION_SHARD = "validation/shard-00000-of-00001.idx.parquet"
MANIFEST = "manifest.json"
METADATA = "bridge_metadata.json"
IDS, MASK, STARTS = "input_ids", "loss_mask", "seq_start_id"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutation:
    """One way to break an artifact."""

    apply: Callable[[Path], object]
    name: str = ""
    #: Rules that must report it.
    codes: tuple[str, ...] = ()
    #: Text in the places that the first of them names.
    where: str = ""
    #: Artifact that is broken: `aligned` (multiple 8) or `plain` (multiple 1).
    base: str = "aligned"
    #: Facts that the check is told.
    given: Mapping[str, Any] = field(default_factory=dict)
    #: Text of the error where the manifest cannot be read; then there are no codes.
    message: str = ""
    #: Sizes, checksums and row counts are those of the manifest.
    fits_manifest: bool = True
    #: Without the manifest no rule can tell.
    needs_manifest: bool = True


def breaks(codes: str, apply: Callable[[Path], object], **fields: Any) -> Mutation:
    """Return a mutation that rules report, whose codes are words of `codes`."""
    return Mutation(apply=apply, codes=tuple(codes.split()), **fields)


def breaks_file(codes: str, apply: Callable[[Path], object], **fields: Any) -> Mutation:
    """Return a mutation that the manifest's sizes and checksums do not fit."""
    return breaks(codes, apply, **{"where": SHARD, "fits_manifest": False, **fields})


def breaks_rows(codes: str, apply: Callable[[Path], object], **fields: Any) -> Mutation:
    """Return a mutation that rules can tell from the rows of `SHARD` alone."""
    return breaks(codes, apply, **{"where": SHARD, "needs_manifest": False, **fields})


def mutations_of(*modules: ModuleType) -> list[Mutation]:
    return [
        replace(value, name=name)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Mutation)
    ]


def rewrite_rows(
    folder: Path, change: Callable[[list[Row]], object], *, shard: str = SHARD, schema: Any = SCHEMA
) -> None:
    """Change the rows of a shard and write it anew, with its record in the manifest."""
    rows = read_rows(folder, shard)
    change(rows)
    rewrite_table(folder, lambda _: pa.Table.from_pylist(rows, schema=schema), shard=shard)


def rewrite_all_rows(folder: Path, change: Callable[[Row], object]) -> None:
    for shard in training_shards(folder):
        rewrite_rows(folder, lambda rows: [change(row) for row in rows], shard=shard)


def read_rows(folder: Path, shard: str) -> list[Row]:
    rows: list[Row] = pq.ParquetFile(folder / shard).read().to_pylist()
    return rows


def rewrite_table(folder: Path, change: Callable[[Any], Any], *, shard: str = SHARD, row_group_size: int = 16) -> None:
    """Change a shard as an Arrow table and write it anew, with its record in the manifest."""
    path = folder / shard
    table = change(pq.ParquetFile(path).read())
    pq.write_table(table, path, row_group_size=row_group_size)
    restate_record(folder, shard)


def cast_column(folder: Path, name: str, element: Any) -> None:
    """Write a column of all training shards as lists of another type."""

    def cast(table: Any) -> Any:
        return table.set_column(table.column_names.index(name), name, table[name].cast(pa.list_(element)))

    for shard in training_shards(folder):
        rewrite_table(folder, cast, shard=shard)


def restate_record(folder: Path, shard: str) -> None:
    content = read_manifest(folder)
    for record in (record for split in content["splits"] for record in split["shards"] if record["path"] == shard):
        record.update(record_of(folder / shard, shard))
    (folder / MANIFEST).write_text(manifest_text(content))


def record_of(path: Path, shard: str) -> dict[str, Any]:
    num_rows = pq.read_metadata(path).num_rows
    return {"path": shard, "num_rows": num_rows, "num_bytes": path.stat().st_size, "sha256": hash_file(path)}


def training_shards(folder: Path) -> list[str]:
    return [record["path"] for record in read_manifest(folder)["splits"][0]["shards"]]


def read_manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return content


def edit_json(folder: Path, change: Callable[[Any], object], *, name: str = MANIFEST) -> None:
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(manifest_text(content) if name == MANIFEST else json.dumps(content))


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def sequences_of(row: Row) -> list[tuple[int, int]]:
    """Return (begin, end) of each sequence of a row, in stored tokens."""
    starts = row[STARTS]
    return list(zip(starts, [*starts[1:], len(row[IDS])], strict=True))
