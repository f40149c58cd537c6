"""Rows as encoders get them in a build: read by the layouts of the settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bridgepack.config.recipe.data import DataConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, Preprocessing
from bridgepack.config.recipe.readings import reading_of
from bridgepack.data.layouts.makers import ReadRow
from bridgepack.data.layouts.reader import RowReader
from bridgepack.data.sequences.encoding import Encoder, FlatBatch, Prepared


def reader_for(settings: Preprocessing | None = None, **data: Any) -> RowReader:
    """Return the reader of a source; by default of plain chats. `data` are fields of that section."""
    config = DataConfig.model_validate({"train": "rows.jsonl", **data})
    return RowReader(reading_of(settings or ChatPreprocessing(), config, "rows.jsonl"))


def read_row(row: Mapping[str, Any], settings: Preprocessing | None = None) -> ReadRow:
    """Return a row as a build reads it: by one reader for all rows with equal settings."""
    chosen = settings or ChatPreprocessing()
    return _reader(type(chosen), chosen.model_dump_json(exclude_unset=True)).read(row)


@lru_cache(maxsize=64)
def _reader(kind: type[Preprocessing], settings: str) -> RowReader:
    return reader_for(kind.model_validate_json(settings))


@dataclass(frozen=True)
class ReadingEncoder:
    """An encoder that reads its rows first, as a build does."""

    encoder: Encoder
    settings: Preprocessing | None = None

    def prepare(self, columns: Mapping[str, Any]) -> Prepared:
        """Return a row, read and prepared."""
        return self.encoder.prepare(read_row(columns, self.settings))

    def encode(self, rows: Sequence[Any]) -> FlatBatch:
        """Return the tokens of prepared rows."""
        return self.encoder.encode(rows)
