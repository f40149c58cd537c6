"""How many packs a build will make, guessed from the size of the input files; no row is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bridgepack.config.recipe.data import HuggingFaceDataset, Source, as_sources
from bridgepack.config.recipe.recipe import SFTRecipe
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PackForecast:
    """What a build is expected to make.

    Attributes:
        num_packs: split -> packs.
        because: how they were worked out, or why not.
    """

    num_packs: Mapping[str, int]
    because: str


def forecast_packs(recipe: SFTRecipe) -> PackForecast:
    """Return the number of packs of each split by the bytes of the input files; nothing for data that is not here."""
    splits = {TRAIN: as_sources(recipe.data.train), VALIDATION: as_sources(recipe.data.validation)}
    sizes: dict[str, float] = {}
    for split, sources in splits.items():
        if any(isinstance(source, HuggingFaceDataset) for source in sources):
            return PackForecast(
                num_packs={}, because="no forecast: the size of data on the hub is not known before a build"
            )
        try:
            sizes[split] = sum(_json_bytes(sources, split))
        except (ConfigError, DataError) as error:
            return PackForecast(num_packs={}, because=f"no forecast: {error}")
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
    return PackForecast(num_packs=num_packs, because=because)


def json_bytes(file: InputFile) -> float:
    """Return about how large a file's rows are as JSON."""
    return file.num_bytes * _SHRINKAGE.get(file.compression or file.kind, 1.0)


def _json_bytes(sources: tuple[Source, ...], split: str) -> Iterator[float]:
    yield from map(json_bytes, find_inputs(sources, f"data.{'train' if split == TRAIN else split}", split, Path()))
