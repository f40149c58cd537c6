"""Frozen values passed between rooms, column names and dtypes.

In: nothing; imports no other room. Out: the values that rooms pass to each other.
Read first: `sequences`.
"""

from bridgepack.records.balance import BalanceRecord, StepRatios, Waiting
from bridgepack.records.checks import (
    Finding,
    InspectableArtifact,
    MetadataFacts,
    PartReader,
    ShardFacts,
)
from bridgepack.records.manifests import (
    FileRecord,
    InputRecord,
    Manifest,
    ShardRecord,
    SourceRecord,
    SplitRecord,
    SplitStatistics,
)
from bridgepack.records.results import Result
from bridgepack.records.runs import Change, Files, LostOverride, RunConfig
from bridgepack.records.sequences import (
    INPUT_IDS,
    LOSS_CURES,
    LOSS_MASK,
    ROW_COLUMNS,
    SEQ_START_ID,
    SPLITS,
    THOUGHT_MARKERS,
    TOLERATED_LOSSES,
    TRAIN,
    VALIDATION,
    Drop,
    DropReason,
    LostContent,
    LostKind,
    MaskArray,
    PackedRow,
    PackPlan,
    RowBatch,
    Sequence,
    TokenArray,
)

__all__ = [
    "INPUT_IDS",
    "LOSS_CURES",
    "LOSS_MASK",
    "ROW_COLUMNS",
    "SEQ_START_ID",
    "SPLITS",
    "THOUGHT_MARKERS",
    "TOLERATED_LOSSES",
    "TRAIN",
    "VALIDATION",
    "BalanceRecord",
    "Change",
    "Drop",
    "DropReason",
    "FileRecord",
    "Files",
    "Finding",
    "InputRecord",
    "InspectableArtifact",
    "LostContent",
    "LostKind",
    "LostOverride",
    "Manifest",
    "MaskArray",
    "MetadataFacts",
    "PackPlan",
    "PackedRow",
    "PartReader",
    "Result",
    "RowBatch",
    "RunConfig",
    "Sequence",
    "ShardFacts",
    "ShardRecord",
    "SourceRecord",
    "SplitRecord",
    "SplitStatistics",
    "StepRatios",
    "TokenArray",
    "Waiting",
]
