"""Results of comparing two artifacts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from bridgepack.records.results import Result
from bridgepack.records.words import count_text

#: Kinds of difference of a sequence, in the order of the report.
Fate = Literal["lost", "gained", "retokenized", "mask_moved", "moved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencePlace:
    """Where a sequence lies in one artifact."""

    file: str
    row: int  #: row of that file, from 1
    pack: int  #: row of the split, from 0
    position: int
    runtime_length: int  #: without alignment padding


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedTokens:
    """Neighbouring tokens that only one of two masks trains."""

    start: int  #: first token, stored, relative to the sequence's start
    stop: int  #: one past the last
    is_trained_now: bool  #: True if the second artifact trains them
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceDifference:
    """One sequence that differs between the artifacts."""

    fate: Fate
    first: SequencePlace | None  #: in the first artifact; None if it was gained
    second: SequencePlace | None  #: in the second artifact; None if it was lost
    is_same_input: bool  #: its file has the same bytes in both
    #: first token that differs, stored, relative to the sequence's start; None if the ids are equal
    token: int | None = None
    text: tuple[str, ...] = ()  #: its first tokens; if re-tokenised, those around the first difference, in both
    masks: tuple[MovedTokens, ...] = ()  #: moved parts of the loss mask
    num_mask_tokens: int = 0  #: tokens that only one of the masks trains


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueDifference:
    """A setting or a statistic in both artifacts."""

    name: str  #: dotted
    first: Any  #: in the first artifact; None if absent there
    second: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDiff:
    """One split in both artifacts."""

    name: str  #: `training` or `validation`
    num_unchanged: int  #: sequences of the same input row with the same content
    num_moved: int  #: sequences with the same content from a different input row
    num_masks_moved: int  #: sequences with the same tokens but a different mask
    num_retokenized: int  #: sequences of the same input row with different tokens
    num_lost: int  #: sequences that only the first has
    num_gained: int  #: sequences that only the second has
    num_repacked: int  #: unchanged sequences in a different pack, or at a different position in it
    statistics: tuple[ValueDifference, ...]
    differences: tuple[SequenceDifference, ...]  #: the first few of each kind

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of sequences per kind of difference."""
        return {
            "lost": self.num_lost,
            "gained": self.num_gained,
            "retokenized": self.num_retokenized,
            "mask_moved": self.num_masks_moved,
            "moved": self.num_moved,
        }

    @property
    def is_same(self) -> bool:
        """Whether a run reads the same packs from both."""
        return not any(self.counts.values()) and not self.num_repacked


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffReport(Result):
    """How two artifacts differ.

    Attributes:
        settings: recipe, derived values, tokenizer and versions that differ.
        inputs: hashes of input files that differ, by name.
    """

    DERIVED: ClassVar = ("is_same",)

    first: str
    second: str
    settings: tuple[ValueDifference, ...]
    inputs: tuple[ValueDifference, ...]
    splits: tuple[SplitDiff, ...]

    def headline(self) -> str:
        """Return what came out, in one line."""
        packs = "the same packs" if self.is_same else "other packs"
        num_unchanged = sum(split.num_unchanged for split in self.splits)
        return f"{self.first} and {self.second}: {packs}; {count_text(num_unchanged, 'sequence')} unchanged"

    @property
    def is_same(self) -> bool:
        """Whether a run reads the same packs from both."""
        return all(split.is_same for split in self.splits)

    def table(self) -> list[dict[str, Any]]:
        """Return the shown sequences, with the name of their split."""
        return [
            {"split": split.name, **asdict(difference)} for split in self.splits for difference in split.differences
        ]
