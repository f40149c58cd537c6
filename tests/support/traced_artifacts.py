"""A tiny artifact that traces, verifications and comparisons are tried on, and ways to change one."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.manifest import manifest_text
from tests.support.small_builds import Row, build, tokenized_recipe, tokenized_row, with_changes

#: Source row that is too long for a pack, and the line that is blank.
OVER_LONG_ROW, BLANK_LINE = 5, 9
NUM_LINES = 14


def source_rows() -> list[Row | None]:
    """Return 14 lines: row `n` begins with id `20 + n` and has 6 runtime tokens; None is the blank one."""
    rows: list[Row | None] = [tokenized_row(20 + number, 5, 6, 7, 8, 9, 2) for number in range(1, NUM_LINES + 1)]
    rows[OVER_LONG_ROW - 1] = tokenized_row(*range(100, 140))
    rows[BLANK_LINE - 1] = None
    return rows


def write_source(path: Path, rows: list[Row | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row) if row is not None else ''}\n" for row in rows))
    return path


def traced_recipe(train: Path, tokenizer: Path, **changes: Any) -> SFTRecipe:
    """Return a recipe of 2 epochs over packs of 16 tokens on 4 GPUs, 4 packs a step."""
    recipe = tokenized_recipe(train, tokenizer)
    return with_changes(
        recipe, {"parallelism__num_gpus": 4, "batch__global_batch_size": 4, "schedule__num_epochs": 2.0, **changes}
    )


def build_traced(folder: Path, tokenizer: Path, **changes: Any) -> Path:
    source = write_source(folder / "rows.jsonl", source_rows())
    return build(traced_recipe(source, tokenizer, **changes), folder / "artifact").output


def change_shard(artifact: Path, pack: int, column: str, place: int, value: int, *, split: str = "training") -> Path:
    """Change one number of a pack of the first shard, as a stray hand would, and return the shard."""
    path = next((artifact / split).glob("*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[pack][column][place] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return path


def restate(artifact: Path) -> None:
    """Put the sizes and checksums of an artifact's files as they are now into its manifest; what is gone goes there."""
    content = json.loads((artifact / "manifest.json").read_text())
    content["files"] = [record for record in content["files"] if (artifact / record["path"]).exists()]
    for record in (*content["files"], *(shard for split in content["splits"] for shard in split["shards"])):
        found = (artifact / record["path"]).read_bytes()
        record.update(num_bytes=len(found), sha256=hashlib.sha256(found).hexdigest())
    change_manifest(artifact, files=content["files"], splits=content["splits"])


def change_manifest(artifact: Path, **values: Any) -> None:
    """Change values of a manifest, as `shard sha256`; a dotted path has `__` for the dot."""
    path = artifact / "manifest.json"
    content = json.loads(path.read_text())
    for name, value in values.items():
        node: Any = content
        *sections, leaf = name.split("__")
        for section in sections:
            node = node[int(section) if section.isdecimal() else section]
        node[leaf] = value
    path.write_text(manifest_text(content), encoding="utf-8")
