"""Where each sequence of a pack comes from: its row, which piece of it, and what was cut on purpose."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import (
    PlanEntry,
    entries_of_packs,
    entries_of_rows,
    has_pieces,
    iter_lost_content,
    plan_path,
)
from bridgepack.errors import ArtifactError
from bridgepack.geometry import aligned_runtime_lengths, runtime_segment_lengths
from bridgepack.records import LostKind, PackedRow, SplitRecord

#: Values of `preprocessing.over_long` that cut conversations between exchanges.
_OF_HISTORY = frozenset({"truncate_history", "split_exchanges"})


class Origin(NamedTuple):
    """The origin of one sequence; the fields are those of `SequenceView`."""

    file: str
    row: int
    first_token: int
    runtime_length: int
    piece: int = 0
    num_pieces: int = 0
    cut: str = ""
    cut_detail: str = ""


def origins_of(artifact: Artifact, split: str, index: int, row: PackedRow) -> list[Origin]:
    """Return the origin of each sequence of a pack, from the plan and the ledger; empty without a plan.

    Raises:
        ArtifactError: plan or ledger cannot be read, or the plan does not fit the pack.
    """
    record = artifact.manifest.split(split)
    entries = entries_of_packs(artifact, split, [index]).get(index, ())
    inputs = dict(enumerate(record.inputs if record else ()))  # an index of -1 means no input
    lengths = np.array([entry.runtime_length for entry in entries], dtype=np.int64)
    planned_lengths = aligned_runtime_lengths(lengths, artifact.manifest.pad_seq_to_mult)
    stored_lengths = runtime_segment_lengths(row.seq_start_id, len(row.input_ids))
    if entries and (
        any(entry.file_index not in inputs for entry in entries) or not np.array_equal(planned_lengths, stored_lengths)
    ):
        raise ArtifactError(
            f"{plan_path(artifact, split)} does not fit pack {index} of {split}, or names inputs that the manifest "
            "does not list: one was changed after the build. `bridgepack prove sources` says which. Build the "
            "artifact again."
        )
    pieces = _pieces(artifact, split, entries) if entries else {}
    details = dict(_left_out(artifact, record)) if entries and record else {}
    action = str(_chat_settings(artifact.manifest.recipe).get("over_long", ""))
    origins = []
    for item in entries:
        file, members = inputs[item.file_index].path, pieces.get((item.file_index, item.row), {})
        detail = details.get((file, item.row), "")
        number = sorted(members).index(item.first_token) + 1 if len(members) > 1 else 0
        several = len(members) if number else 0
        cut = _cut(item, members, detail, action)
        origin = Origin(file, item.row, item.first_token, item.runtime_length, number, several, cut)
        origins.append(origin._replace(cut_detail=detail if cut in _OF_HISTORY else ""))
    return origins


#: First token of each packed sequence of a row -> its runtime length.
type _Pieces = Mapping[int, int]


def _pieces(artifact: Artifact, split: str, entries: Sequence[PlanEntry]) -> dict[tuple[int, int], dict[int, int]]:
    """Return (index of the file, row) -> the packed sequences of the row, for rows of a pack."""
    if not has_pieces(artifact, split):
        return {}
    members_of_row: dict[tuple[int, int], dict[int, int]] = {}
    for item in entries_of_rows(artifact, split, {(entry.file_index, entry.row) for entry in entries}):
        members_of_row.setdefault((item.file_index, item.row), {})[item.first_token] = item.runtime_length
    return members_of_row


def _left_out(artifact: Artifact, record: SplitRecord) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield (file, row) and what was left out of it on purpose, for the rows of a split."""
    if record.lost_content.get(LostKind.CUT_HISTORY):
        for line in iter_lost_content(artifact, kind=LostKind.CUT_HISTORY):
            if line.split == record.name:
                yield (line.file, line.row), line.detail


def _cut(item: PlanEntry, members: _Pieces, detail: str, action: str) -> str:
    """Return the value of `preprocessing.over_long` by which a sequence was cut; empty if it was not."""
    if item.is_truncated:
        return "truncate"
    # pieces of one sequence share a token; the sequences of a conversation do not
    neighbours = [pair for pair in pairwise(sorted(members)) if pair[0] + members[pair[0]] == pair[1]]
    if any(item.first_token in pair for pair in neighbours):
        return "split"
    if action in _OF_HISTORY and (detail or (action == "split_exchanges" and len(members) > 1)):
        return action
    return ""


def _chat_settings(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a manifest's recipe for conversations; empty if it has none."""
    settings = recipe.get("preprocessing") or {}
    sections = [settings, *(settings.get("others") or ())]
    return next((section for section in sections if section.get("kind") == "chat"), {})
