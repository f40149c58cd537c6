"""How many packs a build will make, guessed from the size of the input files; no row is read."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.sources import as_sources, listed, path_of, sets_amount
from bridgepack.data.reading.inputs import GZIP, ZSTANDARD, InputFile, find_inputs
from bridgepack.errors import ConfigError, DataError
from bridgepack.records import TRAIN, VALIDATION

#: Bytes of a JSON file for one token of the text in it, with the braces and names around it. Measured with the
#: tokenizers of Qwen3 and DeepSeek-V3: English chats 5.2, chats with tool calls 4.5, sums in prose 3.1 to 3.5.
BYTES_PER_TOKEN = 4.4
#: The same where a row holds ids and a mask as JSON numbers.
BYTES_PER_ID = 9.0
#: How many times smaller a file is than its rows as JSON.
_SHRINKAGE: Mapping[str, float] = MappingProxyType({GZIP: 3.5, ZSTANDARD: 3.5, "parquet": 2.5, "arrow": 1.0})
#: Part of a pack that tokens fill.
FILL_FRACTION = 0.98


class PackForecast(NamedTuple):
    """The packs of each split that a build is expected to make, and how they were worked out, or why not."""

    num_packs: Mapping[str, int]
    because: str


def forecast_packs(recipe: SFTRecipe) -> PackForecast:
    """Return the number of packs of each split by the bytes of the input files; nothing for data that is not here."""
    sizes: dict[str, float] = {}
    for split, field in ((TRAIN, "train"), (VALIDATION, "validation")):
        sources = as_sources(getattr(recipe.data, field))
        if any(path_of(source) is None for source in sources):
            return PackForecast({}, "no forecast: the size of data on the hub is not known before a build")
        if any(map(sets_amount, listed(getattr(recipe.data, field)))):
            return PackForecast({}, "no forecast: how much of its sources a mixture uses is known after a build")
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
        f"forecast: {sum(sizes.values()) / 1e6:,.1f} MB as JSON, {ratio:g} bytes for a token, packs filled to "
        f"{FILL_FRACTION:.0%}; the build counts"
    )
    return PackForecast(num_packs, because)


def json_bytes(file: InputFile) -> float:
    """Return about how large a file's rows are as JSON."""
    return file.num_bytes * _SHRINKAGE.get(file.compression or file.kind, 1.0)
