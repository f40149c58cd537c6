"""The facts about an artifact after its packs have been streamed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.records import LOSS_MASK, ROW_COLUMNS, Manifest, MetadataFacts, ShardFacts, Waiting
from bridgepack.rules.judging.base_model import UNKNOWN_MODEL, BaseModel
from bridgepack.rules.judging.context import NO_PACKS, CannotJudgeError, CheckContext, require
from bridgepack.rules.judging.overlap import SharedSequences
from bridgepack.rules.judging.tokenizers import NO_TOKENIZERS, TokenizerPair
from bridgepack.rules.judging.truth import SplitTruth

MANIFEST_FILE = "manifest.json"
#: Why the installed host's classes are not known.
NOT_ASKED = "the installed Megatron-Bridge is asked only with --real-validate"
#: Why a recipe's settings about rows are not compared with the packs'.
NO_RECIPE = "no recipe of bridgepack was given"

_INTEGER = re.compile(r"^u?int(?:8|16|32|64)$")
_MASK_ELEMENT = re.compile(r"^(?:u?int(?:8|16|32|64)|bool|(?:half)?float|double)$")
_LIST = re.compile(r"^(?:large_|fixed_size_)?list<\w+: (?P<element>\w+)(?: not null)?>(?:\[\d+\])?$")


@dataclass(frozen=True, slots=True)
class InstalledFields:
    """The fields of the installed host's classes, as it says itself."""

    by_class: Mapping[str, Mapping[str, Any]]  #: class with its module -> field -> its type, and its plain default

    def has(self, kind: str, name: str) -> bool | None:
        """Return whether a class has a field; None for a class that was not read."""
        fields = self.by_class.get(kind)
        return None if fields is None else name in fields


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedSets:
    """Which validation sets a run's evaluations read."""

    num_evaluations: int  #: evaluations that were looked at: the run's first ones, or all
    num_of_set: Mapping[str, int]  #: name of a set -> evaluations that read a pack of it; empty without sets


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowFacts:
    """Facts around a run's settings that take time to know: each is asked by rules that judge by it alone."""

    waiting: Callable[[], Waiting | str] = lambda: NO_PACKS  #: how long ranks wait for each other, or why not known
    #: settings about rows that differ from those that the packs were built with, each with both values; or why that is
    #: unknown
    other_settings: Callable[[], tuple[str, ...] | str] = lambda: NO_RECIPE
    #: why `build` refuses the recipe's balance; None if it accepts it
    balance_refusal: Callable[[], str | None] = lambda: None
    #: the fields of the installed host's classes, or why they are not known
    installed_fields: Callable[[], InstalledFields | str] = lambda: NOT_ASKED
    #: the model whose weights the run starts from, or why it is not known
    base_model: Callable[[], BaseModel | str] = lambda: UNKNOWN_MODEL
    #: the recipe has losses.by_source or losses.by_row true
    asks_for_losses: Callable[[], bool] = lambda: False
    #: how many evaluations read each validation set, or why that is not known
    evaluated_sets: Callable[[], EvaluatedSets | str] = lambda: NO_PACKS
    #: the run's tokenizer beside its model's, or why they are not compared
    tokenizers: Callable[[], TokenizerPair | str] = lambda: NO_TOKENIZERS

    def require_waiting(self) -> Waiting:
        """Return how long ranks wait for each other, or raise `CannotJudgeError`."""
        return _judgeable(self.waiting())

    def require_evaluated_sets(self) -> EvaluatedSets:
        """Return how many evaluations read each validation set, or raise `CannotJudgeError`."""
        return _judgeable(self.evaluated_sets())

    def require_other_settings(self) -> tuple[str, ...]:
        """Return the settings about rows that differ from the packs', or raise `CannotJudgeError`."""
        return _judgeable(self.other_settings())

    def require_tokenizers(self) -> TokenizerPair:
        """Return the run's tokenizer beside its model's, or raise `CannotJudgeError`."""
        return _judgeable(self.tokenizers())

    def require_base_model(self) -> BaseModel:
        """Return the model whose weights the run starts from, or raise `CannotJudgeError`."""
        return _judgeable(self.base_model())


def _judgeable[T](value: T | str) -> T:
    if isinstance(value, str):
        raise CannotJudgeError(value)
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCounts:
    """How much an artifact has, and how much of it was read; the fields of a report."""

    num_shards: int
    num_shards_read: int  #: to the end
    num_rows: int
    num_sound_rows: int  #: with valid structure
    num_tokens: int  #: stored


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactFacts:
    """The facts about an artifact after its packs have been streamed."""

    context: CheckContext  #: facts that it is judged against
    manifest: Manifest | None  #: its manifest, or None
    shards: Mapping[str, tuple[ShardFacts, ...]]  #: split -> its shards, training first
    unlisted_files: tuple[str, ...]  #: files that the manifest does not list
    changed_files: Mapping[str, str]  #: path of a file beside the shards -> how it differs from the manifest
    unreadable_shards: Mapping[str, str]  #: path -> why its rows could not all be read
    metadata: MetadataFacts  #: the host's metadata file
    truths: Mapping[str, SplitTruth]  #: split -> totals over its rows
    shared_sequences: tuple[SharedSequences, ...]  #: sequences that are in two splits
    counts: ReadCounts  #: how much was read

    @property
    def all_shards(self) -> tuple[ShardFacts, ...]:
        """The shards of all splits."""
        return tuple(shard for shards in self.shards.values() for shard in shards)

    def require_manifest(self) -> Manifest:
        """Return the manifest, or raise `CannotJudgeError`."""
        return require(self.manifest, "the artifact has no manifest")

    def require_truths(self) -> tuple[SplitTruth, ...]:
        """Return the truths of the splits with at least one valid pack, or raise `CannotJudgeError`."""
        truths = tuple(truth for truth in self.truths.values() if truth.num_rows)
        return require(truths or None, "no valid pack could be read")

    def require_complete_truths(self) -> tuple[SplitTruth, ...]:
        """Return the truths of the splits whose packs are all valid, or raise `CannotJudgeError`."""
        truths = tuple(truth for truth in self.truths.values() if truth.num_rows and truth.is_complete)
        return require(truths or None, "no split has only readable and valid packs")


def why_not_streamable(shard: ShardFacts) -> str | None:
    """Return why a shard's packs cannot be read at all, or None if they can."""
    if not shard.exists:
        return "the file is missing"
    if shard.read_error is not None:
        return shard.read_error
    unusable = [name for name in ROW_COLUMNS if not is_usable(name, shard.columns.get(name, ""))]
    return f"column {unusable[0]} is missing or not a list of numbers" if unusable else None


def element_of(arrow_type: str) -> str:
    """Return the type of a list's elements: list<element: int32> -> int32; empty for other types."""
    match = _LIST.match(arrow_type)
    return match["element"] if match else ""


def is_usable(column: str, arrow_type: str) -> bool:
    """Return whether an Arrow type is allowed for a column."""
    pattern = _MASK_ELEMENT if column == LOSS_MASK else _INTEGER
    return pattern.match(element_of(arrow_type)) is not None
