"""Detects how the rows of a source are read, from the first rows of its first file; and what a manifest recorded."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import TypeAdapter

from bridgepack.config.layouts.shapes import shapes_of
from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    Layout,
    PromptCompletionLayout,
    TextLayout,
    TokenizedLayout,
    TurnsFromColumn,
)
from bridgepack.config.recipe.readings import Reading, detected_reading, written_layouts
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_range
from bridgepack.records import SPLITS, Manifest

#: Rows that are looked at, and bytes after which no further range is read.
_MAX_ROWS, _MAX_BYTES = 1000, 1 << 25
_LAYOUTS: TypeAdapter[tuple[AnyLayout, ...]] = TypeAdapter(tuple[Layout, ...], config={"defer_build": True})
#: Kind -> the layout of rows that cannot be read, so that each is dropped with its reason.
_OF_NO_ROWS: Mapping[str, AnyLayout] = {
    "chat": ChatLayout(kind="chat", messages=(TurnsFromColumn(from_column="messages"),)),
    "prompt_completion": PromptCompletionLayout(kind="prompt_completion", prompt="{prompt}", completion="{completion}"),
    "text": TextLayout(kind="text"),
    "tokenized": TokenizedLayout(kind="tokenized"),
}
_NO_NAME = "no rows"


def detect_reading(recipe: SFTRecipe, files: Sequence[InputFile], field: str) -> Reading:
    """Return how the rows of a source's files are read, of the kind of the recipe's `preprocessing`.

    The first file with a row that can be read decides. Rows of no layout are dropped where they are read.

    Raises:
        ConfigError: no layout fits a row, several fit equally, or rows of their layout are refused; names `field`.
        DataError: a file cannot be read.
    """
    kind = recipe.preprocessing.kind
    for file in files:
        rows = [*islice(_first_rows(file, recipe.data.max_row_bytes), _MAX_ROWS)]
        places = [f"{file.label} row {number}" for number, _ in rows]
        shapes = shapes_of([row for _, row in rows], kind=kind, data_name=f"{field}: {file.label}", places=places)
        if shapes:
            names = [shape.name for shape in shapes]
            return detected_reading(recipe.preprocessing, [shape.layout for shape in shapes], names)
    return detected_reading(recipe.preprocessing, [_OF_NO_ROWS[kind]], [_NO_NAME])


def _first_rows(file: InputFile, max_row_bytes: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the first rows of a file that can be read, with their numbers."""
    num_bytes = 0
    for part in iter_ranges(file, sha256="", max_row_bytes=max_row_bytes):
        yield from ((row, item) for row, item in read_range(file, part) if isinstance(item, Mapping))
        num_bytes += part.num_bytes or part.stop - part.start
        if num_bytes >= _MAX_BYTES:
            return


def readings_of(recipe: SFTRecipe, files: Mapping[str, Sequence[InputFile]]) -> dict[str, tuple[Reading | None, ...]]:
    """Return split -> how each of its sources is read, for sources without a layout in the recipe.

    `files` have their views. Empty if every source has a layout.
    """
    if not recipe.detects_layouts:
        return {}
    readings = {}
    for split, members in files.items():
        views = {file.source: file.view for file in members}
        readings[split] = tuple(
            None if (view := views.get(index)) is None or written_layouts(recipe.data, source) else view.reading
            for index, source in enumerate(recipe.data.sources_of(split))
        )
    return readings


def recorded_readings(recipe: SFTRecipe, manifest: Manifest) -> dict[str, tuple[Reading | None, ...]]:
    """Return split -> how each of its sources was read, as a build recorded it, for sources without a layout."""
    value = manifest.resolved.get("layout", {}).get("value")
    if not isinstance(value, Mapping) or not recipe.detects_layouts:
        return {}
    readings: dict[str, tuple[Reading | None, ...]] = {}
    for split in (name for name in SPLITS if name in value):
        own_readings = [None if values is None else _reading_of(recipe, values) for values in value[split]]
        num_sources = len(recipe.data.sources_of(split))
        readings[split] = tuple(own_readings * num_sources if len(own_readings) == 1 else own_readings)
    return readings


def _reading_of(recipe: SFTRecipe, values: Mapping[str, Any]) -> Reading:
    return detected_reading(recipe.preprocessing, _LAYOUTS.validate_python(values["layouts"]), values["names"])
