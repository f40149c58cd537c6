"""A worker's task for a shard: assemble and write it, unless an interrupted build already did."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bridgepack.data.files import write_text
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.assembly import ShardPlan, assemble_rows
from bridgepack.data.shards.write import rows_per_group, write_shard
from bridgepack.data.tasks import Beat
from bridgepack.errors import DataError
from bridgepack.records import ShardRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteTask:
    """One shard to write, from the split's token files; `receipt` is the file that records what was written."""

    plan: ShardPlan
    token_files: tuple[Path, ...]
    receipt: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenShard:
    """A shard's record, and whether an interrupted build had written it."""

    record: ShardRecord
    was_there: bool


def write_planned_shard(task: WriteTask, _: Beat) -> WrittenShard:
    """Return a shard's record; writes it unless its receipt names the same rows and the file is unchanged."""
    plan, identity = task.plan, plan_identity(task)
    found = _received(task, identity)
    if found is not None:
        return WrittenShard(record=found, was_there=True)
    group_rows = rows_per_group(plan.packed_sequence_size)
    rows = assemble_rows(plan, task.token_files, rows_per_group=group_rows)
    num_rows = write_shard(plan.path, rows, packed_sequence_size=plan.packed_sequence_size)
    size, sha256 = plan.path.stat().st_size, hash_file(plan.path)
    record = ShardRecord(path=plan.name, num_rows=num_rows, num_bytes=size, sha256=sha256)
    write_text(task.receipt, json.dumps({"identity": identity, "record": asdict(record)}) + "\n")
    return WrittenShard(record=record, was_there=False)


def plan_identity(task: WriteTask) -> str:
    """Return a digest of what a shard's bytes depend on, except the code: the working folder checks that."""
    plan = task.plan
    files, members = np.unique(plan.store_files, return_inverse=True)
    digest = hashlib.sha256()
    sizes = (plan.pad_seq_to_mult, plan.pad_token_id, plan.packed_sequence_size)
    names = [task.token_files[file].name for file in files.tolist()]
    digest.update(json.dumps([plan.name, sizes, names]).encode())
    for array in (plan.pack_offsets, members, plan.store_indices, plan.stored_lengths):
        digest.update(np.ascontiguousarray(array, dtype=np.int64).data)
    return digest.hexdigest()


def _received(task: WriteTask, identity: str) -> ShardRecord | None:
    try:
        content = json.loads(task.receipt.read_text(encoding="utf-8"))
        record = ShardRecord(**content["record"])
        is_same = content["identity"] == identity and task.plan.path.stat().st_size == record.num_bytes
        return record if is_same and hash_file(task.plan.path) == record.sha256 else None
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return None
