"""Rows that are given in memory, as a `datasets.Dataset`, kept as a Parquet file that recipes can name."""

import hashlib
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.data.files import make_folders, replaced_when_whole
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.store.store import default_store
from bridgepack.errors import ConfigError

_ROWS_OF_BATCH = 1000
_FIELDS = re.compile(r"data\.(train|validation)(\.\d+)?(\.path)?")


def rows_folder(output: str | Path | None) -> Path:
    """Return where the rows of an artifact are kept: in `.bridgepack/rows` beside it, as its tokens are."""
    is_elsewhere = output is None or scheme_of(str(output)) is not None
    return default_store(Path("artifacts/any") if is_elsewhere else Path(str(output))).parent / "rows"


def with_kept_rows(recipe: Any, folder: Path) -> Any:
    """Return a recipe's fields, or overrides, with the paths of files in place of datasets; all else as it is.

    Raises:
        ConfigError: a dataset has no rows in memory, or stands where none may.
    """
    if not isinstance(recipe, Mapping) or "datasets" not in sys.modules:
        return recipe
    return _kept(recipe, "", folder)


def _kept(value: Any, field: str, folder: Path) -> Any:
    is_dataset = type(value).__module__.startswith("datasets.")
    if isinstance(value, Mapping) and not is_dataset:
        return {name: _kept(item, f"{field}.{name}".lstrip("."), folder) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(item, f"{field}.{index}", folder) for index, item in enumerate(value)]
    if not is_dataset:
        return value
    if type(value).__name__ == "Dataset" and not len(value):
        raise ConfigError(f"{field} is a Dataset without rows; allowed: one with rows. Give one, or leave it out.")
    if type(value).__name__ != "Dataset" or not _FIELDS.fullmatch(field):
        raise ConfigError(
            f"{field} is a {type(value).__name__}; allowed: a path, or, as "
            "source of data.train or data.validation, a datasets.Dataset with rows. Choose a split of it, or save it "
            "with to_parquet(FILE) and give the file."
        )
    return str(_written(value, folder))


def _written(dataset: Any, folder: Path) -> Path:
    """Return the file of a dataset's rows, named by its content: the same rows are the same input."""
    import pyarrow.parquet as pq

    make_folders(folder)
    schema = dataset.features.arrow_schema.remove_metadata()  # of other marks for the same rows in each process
    whole = folder / f"{secrets.token_hex(8)}.parquet"
    with replaced_when_whole(whole) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in dataset.with_format("arrow").iter(batch_size=_ROWS_OF_BATCH):
            writer.write_table(table.cast(schema))
    with whole.open("rb") as stream:
        path = folder / f"{hashlib.file_digest(stream, 'sha256').hexdigest()[:16]}.parquet"
    return whole.replace(path)
