"""What every comparison of a recipe's rows says: which rows were read, which gave nothing, and where a finding is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bridgepack.records.results import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRows(Result):
    """Result of a comparison of rows.

    Attributes:
        target: the recipe or artifact.
        mode: `all` rows, or a `sample`.
        seed: seed of the sample; None for all rows.
        num_rows: rows of the sources.
        num_rows_read: rows that were read.
        drops: reason -> rows that give no sequence.
    """

    target: str
    mode: Literal["all", "sample"]
    seed: int | None
    num_rows: int
    num_rows_read: int
    drops: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class InRow:
    """A finding's row."""

    split: str
    file: str
    row: int  #: row of that file, from 1
