"""Forecasts from the size of the input files, without reading rows: packs of a build, and space on the disks."""

import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bridgepack.config.recipe.data import as_sources, path_of, sets_amount, source_entries
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import nearest_folder
from bridgepack.data.reading.inputs import GZIP, ZSTANDARD, InputFile, find_inputs
from bridgepack.data.stages.finish import RangeResult
from bridgepack.errors import ArtifactError, ConfigError, DataError
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
#: Bytes per token in the store (id and mask), and in an artifact.
_STORED_BYTES, _PACKED_BYTES = 5.1, 1.6
#: Possible error of the estimate, as a factor: columns that are not tokenised, languages other than English.
_MARGIN = 10.0
#: Input after which measured sizes replace the estimate, and their tolerance.
_SURE_BYTES, _SURE_MARGIN = 1 << 26, 1.2


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
        if any(map(sets_amount, source_entries(getattr(recipe.data, field)))):
            return PackForecast({}, "no forecast: how much of its sources a mixture uses is known only after a build")
        try:
            sizes[split] = sum(map(json_bytes, find_inputs(sources, f"data.{field}", split, Path())))
        except (ConfigError, DataError) as error:
            return PackForecast({}, f"no forecast: {error}")
    if recipe.data.validation_fraction:
        sizes[VALIDATION] = sizes[TRAIN] * recipe.data.validation_fraction
        sizes[TRAIN] -= sizes[VALIDATION]
    ratio = BYTES_PER_ID if recipe.kinds == ("tokenized",) else BYTES_PER_TOKEN
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


class SpaceWatch:
    """Compares the space that a build needs for its artifact and its store with the free space."""

    def __init__(self, output: Path, store: Path, files: Iterable[InputFile]) -> None:
        self._store, self._output = nearest_folder(store), nearest_folder(output.absolute().parent)
        self._num_input_bytes = sum(map(json_bytes, files))
        self._done_bytes = self._token_bytes = 0

    def refuse_full_disks(self) -> None:
        """Check before the build that it can fit.

        Raises:
            ArtifactError: less than a tenth of the estimated space is free.
        """
        num_tokens = self._num_input_bytes / BYTES_PER_TOKEN / _MARGIN
        self._compare(num_tokens * _STORED_BYTES, num_tokens * _PACKED_BYTES, "at least ")

    def add(self, result: RangeResult) -> None:
        """Add the space that a range took; raises ArtifactError if the rest will not fit at this rate."""
        if not result.was_tokenized or not result.num_bytes:
            return
        self._done_bytes += result.num_bytes
        self._token_bytes += result.place.token_file.stat().st_size
        if self._done_bytes >= _SURE_BYTES:
            rate = self._token_bytes / self._done_bytes / _SURE_MARGIN
            remaining_bytes = max(self._num_input_bytes - self._done_bytes, 0) * rate
            packed_bytes = self._num_input_bytes * rate * _PACKED_BYTES / _STORED_BYTES
            self._compare(remaining_bytes, packed_bytes, "about ")

    def _compare(self, token_bytes: float, packed_bytes: float, accuracy: str) -> None:
        needs = [(self._store, token_bytes, "--store"), (self._output, packed_bytes, "--output")]
        if self._store.stat().st_dev == self._output.stat().st_dev:
            needs = [(self._output, token_bytes + packed_bytes, "--output and --store")]
        for place, num_bytes, option in needs:
            free = shutil.disk_usage(place).free
            if free < num_bytes:
                raise ArtifactError(
                    f"{str(place)!r} has {_gigabytes(free)} free; this build needs {accuracy}{_gigabytes(num_bytes)} "
                    f"more there. Finished work is kept. Free space, or choose another {option}."
                )


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
