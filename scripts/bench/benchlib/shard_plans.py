"""The tasks of a build's last stage, from a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchlib.settings import PACKED_SEQUENCE_SIZE
from bridgepack.data.shards.assembly import ShardPlan
from bridgepack.data.shards.write import shard_name
from bridgepack.data.stages.shard_tasks import WriteTask
from bridgepack.data.store.token_file import count_tokens
from bridgepack.records import PackPlan

#: As in a build.
_SHARD_TOKENS = 1 << 25


def write_tasks(plan: PackPlan, stored: Any, paths: Sequence[Path], output: Path) -> Iterator[WriteTask]:
    """Yield the task of each shard of sequences that lie one after the other in token files."""
    ends = np.cumsum([count_tokens(path)[0] for path in paths])
    num_shards = max(-(-int(stored.sum()) // _SHARD_TOKENS), 1)
    cuts = np.linspace(0, plan.num_packs, num_shards + 1).astype(np.int64)
    for index in range(num_shards):
        offsets = plan.pack_offsets[cuts[index] : cuts[index + 1] + 1]
        members = plan.sequence_order[offsets[0] : offsets[-1]]
        files = np.searchsorted(ends, members, side="right")
        name = shard_name(index, num_shards)
        shard = ShardPlan(
            path=output / name,
            name=name,
            pack_offsets=offsets - offsets[0],
            store_files=files,
            store_indices=members - np.concatenate(([0], ends))[files],
            stored_lengths=stored[members],
            pad_seq_to_mult=1,
            pad_token_id=0,
            packed_sequence_size=PACKED_SEQUENCE_SIZE,
        )
        yield WriteTask(plan=shard, token_files=tuple(paths), receipt=output / f"{name}.json", build="benchmark")
