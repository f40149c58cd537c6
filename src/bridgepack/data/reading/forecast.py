"""Forecasts how many packs a build makes from the size of the input files, without reading rows."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bridgepack.config.recipe.data import as_sources, listed, path_of, sets_amount
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import GZIP, ZSTANDARD, InputFile, find_inputs
from bridgepack.errors import ConfigError, DataError
from bridgepack.records import TRAIN, VALIDATION

#: Bytes of a JSON file per token of its text, with braces and field names. Measured with the tokenizers of Qwen3
#: and DeepSeek-V3: English chats 5.2, chats with tool calls 4.5, arithmetic in prose 3.1 to 3.5.
BYTES_PER_TOKEN = 4.4
#: The same for rows that hold ids and a mask as JSON numbers.
BYTES_PER_ID = 9.0
#: Size of the rows as JSON / size of the file, by kind of file.
_SHRINKAGE: Mapping[str, float] = MappingProxyType({GZIP: 3.5, ZSTANDARD: 3.5, "parquet": 2.5, "arrow": 1.0})
#: Expected fill fraction of packs.
FILL_FRACTION = 0.98


class PackForecast(NamedTuple):
    """The expected number of packs of each split, and how it was computed, or why it could not be."""

    num_packs: Mapping[str, int]
    because: str


def forecast_packs(recipe: SFTRecipe) -> PackForecast:
    """Return the expected packs of each split from the bytes of the input files; empty for data on the hub."""
    sizes: dict[str, float] = {}
    for split, field in ((TRAIN, "train"), (VALIDATION, "validation")):
        sources = as_sources(getattr(recipe.data, field))
        if any(path_of(source) is None for source in sources):
            return PackForecast({}, "no forecast: the size of data on the hub is unknown before a build")
        if any(map(sets_amount, listed(getattr(recipe.data, field)))):
            return PackForecast({}, "no forecast: how much of its sources a mixture uses is known only after a build")
        try:
            sizes[split] = sum(map(json_bytes, find_inputs(sources, f"data.{field}", split, Path())))
        except (ConfigError, DataError) as error:
            return PackForecast({}, f"no forecast: {error}")
    if recipe.data.validation_fraction:
        sizes[VALIDATION] = sizes[TRAIN] * recipe.data.validation_fraction
        sizes[TRAIN] -= sizes[VALIDATION]
    ratio = BYTES_PER_ID if recipe.preprocessing.kind == "tokenized" else BYTES_PER_TOKEN
    capacity = recipe.packing.packed_sequence_size * FILL_FRACTION
    num_packs = {split: math.ceil(size / ratio / capacity) for split, size in sizes.items() if size}
    because = (
        f"forecast: {sum(sizes.values()) / 1e6:,.1f} MB as JSON, {ratio:g} bytes per token, packs filled to "
        f"{FILL_FRACTION:.0%}; the build counts exactly"
    )
    return PackForecast(num_packs, because)


def json_bytes(file: InputFile) -> float:
    """Return the approximate size of a file's rows as JSON, in bytes."""
    return file.num_bytes * _SHRINKAGE.get(file.compression or file.kind, 1.0)
