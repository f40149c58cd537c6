"""An artifact in memory, from a case: a few literal rows, and changes to what would lie on disk."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from bridgepack.errors import ArtifactError
from bridgepack.records import (
    SPLITS,
    Manifest,
    MetadataFacts,
    RowBatch,
    ServedRecord,
    ShardFacts,
    ShardRecord,
    SkippedFiles,
    SplitRecord,
    SplitStatistics,
    UnreadField,
)
from bridgepack.rules.judging.context import CheckContext, context_from_manifest
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.scan import Execution
from tests.support.judging import check_artifact, judge_artifact

#: input_ids, loss_mask, seq_start_id.
Row = list[list[Any]]

GOOD_ROWS: list[Row] = [[[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]]]
COLUMNS = {
    "input_ids": "list<element: int32>",
    "loss_mask": "list<element: int8>",
    "seq_start_id": "list<element: int32>",
}
EOS_TOKEN_ID = 2


@dataclass(frozen=True, kw_only=True)
class InMemoryArtifact:
    """What `check_artifact` reads, held in memory."""

    manifest: Manifest | None
    shards: Mapping[str, tuple[ShardFacts, ...]]
    metadata: MetadataFacts
    rows: Mapping[str, list[Row]]
    unlisted: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)
    read_errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def split_names(self) -> tuple[str, ...]:
        return tuple(self.shards)

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        return self.shards[split]

    def unlisted_files(self) -> tuple[str, ...]:
        return self.unlisted

    def changed_files(self) -> Mapping[str, str]:
        return self.changed

    def metadata_facts(self) -> MetadataFacts:
        return self.metadata

    @property
    def parts(self) -> "InMemoryArtifact":
        return self

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield some rows, each of which is a row group where it is asked for some."""
        rows, begin = self.rows[shard], row_groups.start if row_groups else 0
        last = row_groups.stop if row_groups else len(rows)
        for end in range(begin + 1, last + 1):
            if end == last or sum(len(row[0]) for row in rows[begin : end + 1]) > max_tokens:
                yield row_batch(rows[begin:end], shard=shard, first_row=begin)
                begin = end
        if shard in self.read_errors:
            raise ArtifactError(self.read_errors[shard])

    def sha256(self, shard: str) -> str:
        return f"hash of {shard}"


def row_batch(rows: list[Row], *, shard: str = "training/shard", first_row: int = 0) -> RowBatch:
    ids, mask, starts = (_concatenated([np.asarray(row[index]) for row in rows]) for index in range(3))
    ends = [np.cumsum([0, *(len(row[index]) for row in rows)], dtype=np.int64) for index in range(3)]
    return RowBatch(
        shard=shard,
        first_row=first_row,
        input_ids=ids.astype(np.int32),
        token_offsets=ends[0],
        loss_mask=mask.astype(np.int8) if mask.dtype.kind in "iu" else mask,
        mask_offsets=ends[1],
        seq_start_id=starts.astype(np.int32),
        start_offsets=ends[2],
    )


def artifact(case: Mapping[str, Any]) -> InMemoryArtifact:
    """Return the artifact of a case; whatever the case leaves out is consistent with its rows."""
    shards = _shards_of(case)
    size, multiple = case.get("packed_sequence_size", 16), case.get("pad_seq_to_mult", 1)
    disk = _set_all(_disk(shards, size=size, multiple=multiple), case.get("set", {}))
    rows = {path: rows for group in shards.values() for path, rows in group.items()}
    manifest = _manifest(disk["manifest"]) if case.get("has_manifest", True) else None
    facts = {split: tuple(ShardFacts(**shard) for shard in group) for split, group in disk["shards"].items()}
    return InMemoryArtifact(
        manifest=manifest,
        shards={split: facts[split] for split in sorted(facts, key=lambda name: (*SPLITS, name).index(name))},
        metadata=MetadataFacts(**disk["metadata"]),
        rows=rows,
        unlisted=tuple(disk["unlisted"]),
        changed=disk["changed"],
        read_errors=disk["read_errors"],
    )


def artifact_facts(case: Mapping[str, Any]) -> ArtifactFacts:
    return judge_artifact(artifact(case))[1]


def check(case: Mapping[str, Any], *, max_tokens: int = 1 << 20, **options: Any) -> CheckReport:
    subject = artifact(case)
    context = case.get("context")
    if context is not None:
        base = context_from_manifest(subject.manifest) if subject.manifest else CheckContext()
        options["context"] = replace(base, **context)
    return check_artifact(subject, execution=Execution(max_tokens=max_tokens), **options)


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    filled = [values for values in arrays if len(values)]
    return np.concatenate(filled) if filled else np.empty(0, dtype=np.int64)


def _shards_of(case: Mapping[str, Any]) -> dict[str, dict[str, list[Row]]]:
    splits = {split: _expanded(rows) for split, rows in case.get("rows", {"training": GOOD_ROWS}).items()}
    rows_per_shard = case.get("rows_per_shard", 10**9)
    shards: dict[str, dict[str, list[Row]]] = {}
    for split, rows in splits.items():
        groups = [rows[first : first + rows_per_shard] for first in range(0, len(rows), rows_per_shard)] or [[]]
        names = [f"{split}/shard-{index:05d}-of-{len(groups):05d}.idx.parquet" for index in range(len(groups))]
        shards[split] = dict(zip(names, groups, strict=True))
    return shards


def _expanded(rows: list[Any]) -> list[Row]:
    """Return plain rows for `{"row": row, "times": n}` and `{"sequence": [ids, mask], "times": n}` among them."""
    expanded: list[Row] = []
    for row in rows:
        if isinstance(row, list):
            expanded.append(row)
        elif "row" in row:
            expanded += [row["row"]] * row["times"]
        else:
            (ids, mask), times = row["sequence"], row["times"]
            expanded.append([ids * times, mask * times, list(range(0, len(ids) * times, len(ids)))])
    return expanded


def _disk(shards: Mapping[str, Mapping[str, list[Row]]], *, size: int, multiple: int) -> dict[str, Any]:
    """Return everything but the rows, as plain values that a case can change."""
    statistics = {
        split: _statistics([row for rows in group.values() for row in rows]) for split, group in shards.items()
    }
    return {
        "manifest": {
            "packed_sequence_size": size,
            "pad_seq_to_mult": multiple,
            "tokenizer": {"eos_token_id": EOS_TOKEN_ID, "vocab_size": 100},
            "recipe": {"preprocessing": {"loss_mode": "assistant"}},
            **{"format_version": 6, "fingerprint": "f" * 64, "resolved": {}, "versions": {}},
            "splits": {
                split: {
                    **{"name": split, "inputs": (), "drop_examples": (), "drops": {}},
                    "shards": [_record(path, rows) for path, rows in group.items()],
                    "statistics": statistics[split],
                }
                for split, group in shards.items()
            },
        },
        "shards": {
            split: [
                _record(path, rows)
                | {"exists": True, "columns": dict(COLUMNS), "read_error": None}
                | {"row_group_rows": [len(rows)], "row_group_tokens": [sum(len(row[0]) for row in rows)]}
                for path, rows in group.items()
            ]
            for split, group in shards.items()
        },
        "metadata": {
            **{"path": "bridge_metadata.json", "exists": True, "read_error": None},
            "content": [_metadata(statistics[split], size) for split in shards],
        },
        "unlisted": [],
        "changed": {},
        "read_errors": {},
    }


def _record(path: str, rows: list[Row]) -> dict[str, Any]:
    return {"path": path, "num_rows": len(rows), "num_bytes": 100 + len(rows), "sha256": f"sha256 of {path}"}


def _statistics(rows: list[Row]) -> dict[str, Any]:
    lengths = [end - start - 1 for ids, _, starts in rows for start, end in pairwise([*starts, len(ids)])]
    widths = [len(ids) - len(starts) for ids, _, starts in rows]
    return {
        **{"num_rows_in": len(lengths), "num_blank_lines": 0, "num_truncated": 0, "num_alignment_tokens": 0},
        **{"num_sequences": len(lengths), "num_packs": len(rows), "num_tokens": sum(lengths)},
        "num_trained_tokens": sum(int(value) for _, mask, _ in rows for value in mask),
        "max_runtime_length": max(lengths, default=0),
        "max_sequences_per_pack": max((len(starts) for _, _, starts in rows), default=0),
        "min_pack_tokens": min(widths, default=0),
        "length_histogram": ((1 << 20, len(lengths)),),
    }


def _metadata(statistics: Mapping[str, Any], size: int) -> dict[str, Any]:
    num_packs = statistics["num_packs"] or 1
    return {
        "dataset_max_seqlen": statistics["max_runtime_length"],
        "max_samples_per_bin": statistics["max_sequences_per_pack"],
        "packing_factor": round(statistics["num_sequences"] / num_packs, 2),
        "packing_efficiency": round(statistics["num_tokens"] / num_packs / size * 100, 2),
        "pack_size": size,
        "min_packed_seqlen": statistics["min_pack_tokens"],
    }


def _manifest(values: Mapping[str, Any]) -> Manifest:
    served = values.get("served")
    own = {
        "splits": tuple(map(_split, values["splits"].values())),
        "served": None if served is None else TypeAdapter(ServedRecord).validate_python(served),
    }
    return Manifest(**{**values, **own})


def _split(values: Mapping[str, Any]) -> SplitRecord:
    shards = tuple(ShardRecord(**shard) for shard in values["shards"])
    unread = tuple(UnreadField(**field) for field in values.get("unread", ()))
    skipped = values.get("skipped_files")
    own = {
        "shards": shards,
        "statistics": SplitStatistics(**values["statistics"]),
        "unread": unread,
        "skipped_files": None if skipped is None else SkippedFiles(**skipped),
    }
    return SplitRecord(**{**values, **own})


def _set_all(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with some replaced: path such as `shards/training/0/exists` -> value."""
    changed = copy.deepcopy(values)
    for path, value in changes.items():
        *parents, last = path.split("/")
        target: Any = changed
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        target[int(last) if isinstance(target, list) else last] = value
    return changed
