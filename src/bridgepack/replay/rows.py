"""Packs as the host counts them over shards, and where each lies."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from bridgepack.errors import ConfigError


class ShardRow(NamedTuple):
    """A pack's place on disk: the shard's name, and the row in it from 0."""

    shard: str
    row: int


class ShardIndex:
    """Places of packs in a split's shards, which the host puts one after another in the order of their names.

    Source: megatron-bridge 0.6.2, data/packing/paths.py (_resolve_parquet_paths), data/packing/parquet.py
    (_locate_row); 0.4.0 to 0.5.1, data/datasets/packed_parquet.py. All shards of a split are in one folder.
    """

    def __init__(self, num_rows: Mapping[str, int]) -> None:
        """Index the shards, name -> rows; an empty shard has no place."""
        self.shards = tuple(sorted(num_rows))
        self._offsets = [0, *accumulate(num_rows[name] for name in self.shards)]

    @property
    def num_packs(self) -> int:
        """Rows of all shards."""
        return self._offsets[-1]

    def place_of(self, pack: int) -> ShardRow:
        """Return where a pack is: shards of 3 and 2 rows -> pack 4 is row 1 of the second.

        Raises:
            ConfigError: there is no such pack.
        """
        if not 0 <= pack < self.num_packs:
            raise ConfigError(f"pack is {pack}; allowed: 0 to {self.num_packs - 1}.")
        shard = bisect_right(self._offsets, pack) - 1
        return ShardRow(self.shards[shard], pack - self._offsets[shard])
