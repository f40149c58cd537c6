"""Keeps rows given in memory, as a Dataset, a DataFrame or a list of dicts, in a file that recipes can name."""

import datetime
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bridgepack.config.errors import quote
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.data import COLUMNS_OF_ROWS, DataSource
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import make_folders, replaced_when_whole
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.reading.rows import without_nulls
from bridgepack.errors import ConfigError
from bridgepack.records.words import kind_of

type _Kind = Literal["Dataset", "DataFrame", "list"]

_ROWS_OF_BATCH = 1000
_FIELDS = re.compile(r"data\.(train|validation)(\.\d+)?(\.sources\.\d+)*(\.path)?")
#: Fields of a source's section that say where its rows are; and columns that no such section has.
_PLACES = frozenset({"path", "dataset", "sources"})
#: Rows whose columns tell a list of rows from a list of sources.
_LOOKED_AT = 100
#: Likeness of two names (0-1) from which one is the other misspelt.
_MISSPELT = 0.75
_ALLOWED = "a datasets.Dataset, a pandas.DataFrame or a list of dicts, with rows"


def recipe_with_rows(
    recipe: Any,
    overrides: Mapping[str, Any] | None,
    *,
    output: str | Path | None = None,
    store: Path | None = None,
) -> SFTRecipe:
    """Return a recipe with its rows in memory written to files, in the folder `rows` of the token store.

    Raises:
        ConfigError: see `load_recipe`; or there are no rows, or they are in a field that does not take them.
        StoreError: the store cannot be written.
    """
    return load_recipe(*with_kept_rows(recipe, overrides, output=output, store=store))


def with_kept_rows(
    recipe: Any,
    overrides: Mapping[str, Any] | None,
    *,
    output: str | Path | None = None,
    store: Path | None = None,
) -> tuple[Any, Mapping[str, Any] | None]:
    """Return a recipe, and its overrides, with the paths of the written rows in place of rows in memory.

    The recipe is as given, or loaded if it was named and the overrides have rows: its code runs once.

    Raises:
        ConfigError, StoreError: as `recipe_with_rows`.
    """
    rows_and_fields: list[Any] = []

    def note_rows(_: _Kind, value: Any, field: str) -> None:
        rows_and_fields.append((value, field))

    fields, changes = _replace_rows(recipe, note_rows), _replace_rows(overrides, note_rows)
    if not rows_and_fields:
        return recipe, overrides
    from bridgepack.data.store.store import ROWS, default_store, opened_store  # needs pyarrow, which a check does not

    is_named = not isinstance(recipe, Mapping)
    recipe = load_recipe(recipe) if is_named else recipe
    sft_recipe = load_recipe(recipe if is_named else fields, changes)  # fails before rows are written
    output_folder = sft_recipe.artifact if output is None or scheme_of(str(output)) is not None else output
    with opened_store(store or default_store(Path(output_folder or "artifacts/any"))) as token_store:
        keep = partial(_write_rows, folder=token_store.folder / ROWS)
        return _replace_rows(recipe, keep), _replace_rows(overrides, keep)


def _replace_rows(value: Any, keep: Callable[[_Kind, Any, str], Any], field: str = "") -> Any:
    """Return fields with all rows in memory replaced by `keep(kind, rows, field)` as text."""
    kind = _kind_of(value, field)
    if kind is not None:
        if not len(value):
            raise ConfigError(f"{field} is a {kind} without rows; allowed: one with rows. Give one or omit the field.")
        return str(keep(kind, value, field))
    if isinstance(value, Mapping):
        return {name: _replace_rows(item, keep, f"{field}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_rows(item, keep, f"{field}.{index}") for index, item in enumerate(value)]
    return value


def _kind_of(value: Any, field: str) -> _Kind | None:
    """Return the kind of rows in memory, None for other values; refuses data in fields that take none."""
    takes_rows = _FIELDS.fullmatch(field) is not None
    if isinstance(value, list | tuple):
        return "list" if takes_rows and _is_rows(value) else None
    package = type(value).__module__.partition(".")[0]
    if package not in {"datasets", "pandas"}:
        return None
    names = {base.__name__ for base in type(value).__mro__}
    kind: _Kind | None = "Dataset" if "Dataset" in names else "DataFrame" if "DataFrame" in names else None
    if kind is None or not takes_rows:
        raise ConfigError(
            f"{field} is {kind_of(value)}; allowed: a path, or for sources of data.train and data.validation "
            f"{_ALLOWED}. Choose one of its splits, or save it with to_parquet(FILE) and give the file."
        )
    return kind


def _is_rows(values: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a list holds rows, and not sections that name sources, some perhaps with a misspelt field."""
    if not all(isinstance(row, Mapping) for row in values):
        return False
    source_fields = DataSource.model_fields
    names = {str(name) for row in values[:_LOOKED_AT] for name in row}
    other_names = names - source_fields.keys()
    if names & _PLACES:
        return bool(other_names & COLUMNS_OF_ROWS)
    return any(not get_close_matches(name.lower(), source_fields, n=1, cutoff=_MISSPELT) for name in other_names)


def _write_rows(kind: _Kind, rows: Any, field: str, folder: Path) -> Path:
    """Return the file of rows, named by its content, so that equal rows are the same input."""
    make_folders(folder)
    suffix = ".parquet" if kind == "Dataset" else ".jsonl"
    unnamed_file = folder / f"{secrets.token_hex(8)}{suffix}"
    with replaced_when_whole(unnamed_file) as temporary:
        if kind == "Dataset":
            _write_parquet(temporary, rows)
        else:
            _write_lines(temporary, rows if kind == "list" else _rows_of_frame(rows, field), field)
    with unnamed_file.open("rb") as stream:
        path = folder / f"{hashlib.file_digest(stream, 'sha256').hexdigest()[:16]}{suffix}"
    return unnamed_file.replace(path)


def _write_parquet(path: Path, dataset: Any) -> None:
    import pyarrow.parquet as pq

    schema = dataset.features.arrow_schema.remove_metadata()  # the metadata differs between processes for the same rows
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in dataset.with_format("arrow").iter(batch_size=_ROWS_OF_BATCH):
            writer.write_table(table.cast(schema))


def _write_lines(path: Path, rows: Iterable[Mapping[Any, Any]], field: str) -> None:
    """Write rows as JSON lines, which keep what each row has and no more."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{_line(row, field)}\n" for row in rows)


def _line(row: Mapping[Any, Any], field: str) -> str:
    """Return a row as JSON; a missing number (NaN) in a column is null."""
    columns = {name: None if isinstance(item, float) and item != item else item for name, item in row.items()}
    try:
        text = json.dumps(columns, ensure_ascii=False, default=_plain)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{field} has a row that is not JSON, {quote(row)}: {error}; allowed: text, numbers, true or false, null, "
            "lists and dicts of these. Convert it."
        ) from None
    return text


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a number or an array of numpy
        return value.tolist()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it has {kind_of(value)}")


def _rows_of_frame(frame: Any, field: str) -> Iterator[Mapping[Any, Any]]:
    """Yield the rows of a DataFrame, with a named index as columns, and without nulls, as of a columnar file."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if not frame.columns.is_unique:
        twice = ", ".join(map(str, dict.fromkeys(frame.columns[frame.columns.duplicated()])))
        raise ConfigError(f"{field} is a DataFrame with two columns {twice}; allowed: one of each name. Rename one.")
    for start in range(0, len(frame), _ROWS_OF_BATCH):
        part = frame.iloc[start : start + _ROWS_OF_BATCH].astype(object)
        for row in part.where(part.notna(), None).to_dict("records"):
            yield without_nulls(json.loads(_line(row, field)))
