"""Frozen values passed between rooms, column names and dtypes.

In: nothing; imports no other room. Out: the values that rooms pass to each other.
Read first: `sequences`.
"""

# `X as X` tells type checkers that a name is public here.
from bridgepack.records.checks import Change as Change
from bridgepack.records.checks import Finding as Finding
from bridgepack.records.checks import InspectableArtifact as InspectableArtifact
from bridgepack.records.checks import MetadataFacts as MetadataFacts
from bridgepack.records.checks import PartReader as PartReader
from bridgepack.records.checks import Progress as Progress
from bridgepack.records.checks import Refusal as Refusal
from bridgepack.records.checks import RunConfig as RunConfig
from bridgepack.records.checks import ShardFacts as ShardFacts
from bridgepack.records.checks import Upgrade as Upgrade
from bridgepack.records.checks import UpgradeChange as UpgradeChange
from bridgepack.records.manifests import BalanceRecord as BalanceRecord
from bridgepack.records.manifests import FileRecord as FileRecord
from bridgepack.records.manifests import InputRecord as InputRecord
from bridgepack.records.manifests import Manifest as Manifest
from bridgepack.records.manifests import ShardRecord as ShardRecord
from bridgepack.records.manifests import SkippedFiles as SkippedFiles
from bridgepack.records.manifests import SourceRecord as SourceRecord
from bridgepack.records.manifests import SplitRecord as SplitRecord
from bridgepack.records.manifests import SplitStatistics as SplitStatistics
from bridgepack.records.manifests import StepRatios as StepRatios
from bridgepack.records.manifests import UnreadField as UnreadField
from bridgepack.records.manifests import Waiting as Waiting
from bridgepack.records.sequences import ASSISTANT as ASSISTANT
from bridgepack.records.sequences import INPUT_IDS as INPUT_IDS
from bridgepack.records.sequences import LOSS_CURES as LOSS_CURES
from bridgepack.records.sequences import LOSS_MASK as LOSS_MASK
from bridgepack.records.sequences import ROW_COLUMNS as ROW_COLUMNS
from bridgepack.records.sequences import SEQ_START_ID as SEQ_START_ID
from bridgepack.records.sequences import SPLITS as SPLITS
from bridgepack.records.sequences import TOLERATED_LOSSES as TOLERATED_LOSSES
from bridgepack.records.sequences import TRAIN as TRAIN
from bridgepack.records.sequences import VALIDATION as VALIDATION
from bridgepack.records.sequences import Drop as Drop
from bridgepack.records.sequences import DropReason as DropReason
from bridgepack.records.sequences import LostContent as LostContent
from bridgepack.records.sequences import LostKind as LostKind
from bridgepack.records.sequences import MaskArray as MaskArray
from bridgepack.records.sequences import PackedRow as PackedRow
from bridgepack.records.sequences import PackPlan as PackPlan
from bridgepack.records.sequences import RowBatch as RowBatch
from bridgepack.records.sequences import Sequence as Sequence
from bridgepack.records.sequences import TokenArray as TokenArray
from bridgepack.records.served import CURING_SETTINGS as CURING_SETTINGS
from bridgepack.records.served import EXPECTED_KINDS as EXPECTED_KINDS
from bridgepack.records.served import SWITCHED_KINDS as SWITCHED_KINDS
from bridgepack.records.served import ServedCount as ServedCount
from bridgepack.records.served import ServedKind as ServedKind
from bridgepack.records.served import ServedRecord as ServedRecord
from bridgepack.records.served import Shares as Shares
from bridgepack.records.served import percent as percent
from bridgepack.records.thought_markers import INLINE_ANSWER_MARKERS as INLINE_ANSWER_MARKERS
from bridgepack.records.thought_markers import INLINE_THOUGHT_MARKERS as INLINE_THOUGHT_MARKERS
from bridgepack.records.thought_markers import THOUGHT_MARKERS as THOUGHT_MARKERS
from bridgepack.records.verdicts import HostVerdict as HostVerdict
