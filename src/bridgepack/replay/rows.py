"""The host's numbering of packs over shards, and each pack's location."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from bridgepack.errors import ConfigError


class ShardRow(NamedTuple):
    """A pack's location on disk: the shard's name, and the row in it, from 0."""

    shard: str
    row: int


class ShardIndex:
    """Locations of packs in a split's shards, which the host concatenates in the order of their names.

    Source: megatron-bridge 0.6.2, data/packing/paths.py (_resolve_parquet_paths), data/packing/parquet.py
    (_locate_row); 0.4.0 to 0.5.1, data/datasets/packed_parquet.py. All shards of a split are in one folder.
    """

    def __init__(self, num_rows: Mapping[str, int]) -> None:
        """Take the shards as name -> number of rows; ignores empty shards."""
        self.shards = tuple(sorted(num_rows))
        self._offsets = [0, *accumulate(num_rows[name] for name in self.shards)]

    @property
    def num_packs(self) -> int:
        """Number of rows in all shards."""
        return self._offsets[-1]

    def place_of(self, pack: int) -> ShardRow:
        """Return the location of a pack: shards of 3 and 2 rows -> pack 4 is row 1 of the second.

        Raises:
            ConfigError: the pack does not exist.
        """
        if not 0 <= pack < self.num_packs:
            raise ConfigError(f"pack is {pack}; allowed: 0 to {self.num_packs - 1}.")
        shard = bisect_right(self._offsets, pack) - 1
        return ShardRow(self.shards[shard], pack - self._offsets[shard])
