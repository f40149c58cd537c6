"""Draws and reads some packs of an artifact, reading only the necessary parts of its shards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.reading.remote import arrow_source
from bridgepack.data.shards.row_groups import batch_of_table, one_line, row_of_numbers
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow
from bridgepack.records.manifests import SplitRecord
from bridgepack.replay.rows import ShardIndex


def opened_artifact(folder: Path, *, may_be_changed: bool = False) -> Artifact:
    """Return an artifact whose manifest has what proofs need; `may_be_changed` also accepts changed files.

    Raises:
        ArtifactError: it has no manifest, like packs of other tools; the manifest lacks the tokenizer; or it changed.
    """
    artifact = Artifact(folder, may_be_changed=may_be_changed)
    known = artifact.manifest.tokenizer
    if type(known.get("eos_token_id")) is not int or not isinstance(known.get("name_or_path"), str):
        raise ArtifactError(
            f"{folder / MANIFEST_FILE}: tokenizer has no name_or_path or no eos_token_id. Build the artifact again."
        )
    return artifact


def split_record(artifact: Artifact, split: str) -> SplitRecord:
    """Return the record of a split.

    Raises:
        ArtifactError: the split does not exist.
    """
    record = artifact.manifest.split(split)
    if record is None:
        names = ", ".join(item.name for item in artifact.manifest.splits)
        raise ArtifactError(f"split is {split!r}; {str(artifact.folder)!r} has: {names}. Choose one of these.")
    return record


def shard_index(artifact: Artifact, split: str) -> ShardIndex:
    """Return the index of a split's packs over its shards.

    Raises:
        ArtifactError: the split does not exist.
    """
    return ShardIndex({shard.path: shard.num_rows for shard in split_record(artifact, split).shards})


def read_packs(artifact: Artifact, split: str, packs: Iterable[int]) -> dict[int, PackedRow]:
    """Return some packs of a split; reads only the row groups that contain them.

    Raises:
        ArtifactError: the split does not exist, or a shard cannot be read.
        ConfigError: the pack does not exist.
    """
    index = shard_index(artifact, split)
    places = sorted((index.place_of(pack), pack) for pack in set(packs))
    rows: dict[int, PackedRow] = {}
    for name, members in groupby(places, key=lambda item: item[0].shard):
        rows |= _rows_of_shard(artifact, name, {place.row: pack for place, pack in members})
    return rows


def _rows_of_shard(artifact: Artifact, name: str, packs: Mapping[int, int]) -> dict[int, PackedRow]:
    """Return pack -> its row in a shard, given row -> pack."""
    shards = (shard for split in artifact.manifest.splits for shard in split.shards)
    path = artifact.path_of(next(shard for shard in shards if shard.path == name))
    found: dict[int, PackedRow] = {}
    first = 0
    try:
        with pq.ParquetFile(arrow_source(path), memory_map=True) as file:
            for group in range(file.metadata.num_row_groups):
                num_rows = file.metadata.row_group(group).num_rows
                wanted = [row for row in range(first, first + num_rows) if row in packs]
                if wanted:
                    batch = batch_of_table(file.read_row_group(group, use_threads=False), name, first)
                    found |= {packs[row]: row_of_numbers(batch.row(row - first), name) for row in wanted}
                first += num_rows
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{name} cannot be read: {one_line(error)}. Build the artifact again.") from None
    if max(packs) >= first:
        raise ArtifactError(f"{name} has {first} rows, so row {max(packs)} does not exist. Build the artifact again.")
    return found


def drawn_of_each(sizes: Sequence[int], num_drawn: int, seed: int) -> Iterator[list[int]]:
    """Yield the part of a sample over several lists that falls into each, as ascending indices in the list.

    Example: sizes [2, 3], 5 drawn -> [0, 1], [0, 1, 2].
    """
    total = sum(sizes)
    drawn = np.sort(np.random.default_rng(seed).choice(total, size=min(num_drawn, total), replace=False))
    for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        yield (drawn[(drawn >= first) & (drawn < first + size)] - first).tolist()


def trained_of(row: PackedRow, start: int, stop: int, eos_token_id: int) -> int:
    """Return how many tokens the host trains in the sequence at `start:stop`: labels whose input is not EOS."""
    is_input = row.input_ids[start : stop - 1] != eos_token_id
    return int(((row.loss_mask[start : stop - 1] != 0) & is_input).sum())
