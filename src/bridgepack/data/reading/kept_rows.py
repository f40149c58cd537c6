"""Keeps rows given in memory, as a `datasets.Dataset`, in a Parquet file that recipes can name."""

import hashlib
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import make_folders, replaced_when_whole
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.store.store import ROWS, default_store, opened_store
from bridgepack.errors import ConfigError

_ROWS_OF_BATCH = 1000
_FIELDS = re.compile(r"data\.(train|validation)(\.\d+)?(\.sources\.\d+)*(\.path)?")


def recipe_with_rows(
    recipe: Any, overrides: Mapping[str, Any] | None, *, output: str | Path | None, store: Path | None
) -> SFTRecipe:
    """Return a recipe with its in-memory datasets written to files, in the folder `rows` of the token store.

    Raises:
        ConfigError: see `load_recipe`; or a dataset has no rows, or is in a field that does not take one.
        StoreError: the store cannot be written.
    """
    if "datasets" not in sys.modules:
        return load_recipe(recipe, overrides)
    found: list[Any] = []
    loaded = load_recipe(_kept(recipe, found.append), _kept(overrides, found.append))
    if not found:
        return loaded
    named = loaded.artifact if output is None or scheme_of(str(output)) is not None else output
    with opened_store(store or default_store(Path(named or "artifacts/any"))) as opened:
        keep = partial(_written, folder=opened.folder / ROWS)
        return load_recipe(_kept(recipe, keep), _kept(overrides, keep))


def _kept(value: Any, keep: Callable[[Any], Any], field: str = "") -> Any:
    """Return fields with each dataset replaced by `keep(dataset)` as text."""
    is_dataset = type(value).__module__.startswith("datasets.")
    if isinstance(value, Mapping) and not is_dataset:
        return {name: _kept(item, keep, f"{field}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(item, keep, f"{field}.{index}") for index, item in enumerate(value)]
    if not is_dataset:
        return value
    if type(value).__name__ == "Dataset" and not len(value):
        raise ConfigError(f"{field} is a Dataset without rows; allowed: one with rows. Give one or omit the field.")
    if type(value).__name__ != "Dataset" or not _FIELDS.fullmatch(field):
        raise ConfigError(
            f"{field} is a {type(value).__name__}; allowed: a path, or for "
            "sources of data.train and data.validation a datasets.Dataset with rows. Choose one of its splits, or save "
            "it with to_parquet(FILE) and give the file."
        )
    return str(keep(value))


def _written(dataset: Any, folder: Path) -> Path:
    """Return the file of a dataset's rows, named by its content, so that equal rows are the same input."""
    import pyarrow.parquet as pq

    make_folders(folder)
    schema = dataset.features.arrow_schema.remove_metadata()  # the metadata differs between processes for the same rows
    whole = folder / f"{secrets.token_hex(8)}.parquet"
    with replaced_when_whole(whole) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in dataset.with_format("arrow").iter(batch_size=_ROWS_OF_BATCH):
            writer.write_table(table.cast(schema))
    with whole.open("rb") as stream:
        path = folder / f"{hashlib.file_digest(stream, 'sha256').hexdigest()[:16]}.parquet"
    return whole.replace(path)
