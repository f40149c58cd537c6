"""What the comparison of two artifacts says."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from bridgepack.records.results import Result

#: What can become of a sequence, in the order in which it is told.
Fate = Literal["lost", "gained", "retokenized", "mask_moved", "moved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencePlace:
    """Where a sequence lies in one artifact."""

    file: str
    row: int  #: of that file, from 1
    pack: int  #: row of the split, from 0
    position: int
    runtime_length: int  #: without alignment padding


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedTokens:
    """Neighbouring tokens that only one of two masks trains."""

    start: int  #: first token, stored, counted from the sequence's first
    stop: int  #: one past the last
    is_trained_now: bool  #: the second artifact trains them
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceDifference:
    """One sequence that is not the same in both."""

    fate: Fate
    first: SequencePlace | None  #: in the first artifact; None where it was gained
    second: SequencePlace | None  #: in the second artifact; None where it was lost
    is_same_input: bool  #: its file has the same bytes in both
    #: first token that differs, stored, counted from the sequence's first; None where ids are the same
    token: int | None = None
    text: tuple[str, ...] = ()  #: its first tokens; of a re-tokenised one, those around the first that differs, in both
    masks: tuple[MovedTokens, ...] = ()  #: what moved of the loss mask
    num_mask_tokens: int = 0  #: tokens that only one of the masks trains


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueDifference:
    """A setting or a statistic in both artifacts."""

    name: str  #: dotted
    first: Any  #: in the first artifact; None where it has none
    second: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDiff:
    """One split in both artifacts."""

    name: str  #: `training` or `validation`
    num_unchanged: int  #: sequences of the same source row with the same content
    num_moved: int  #: sequences with the same content under another source row
    num_masks_moved: int  #: sequences with the same tokens and another mask
    num_retokenized: int  #: sequences of the same source row with other tokens
    num_lost: int  #: sequences that only the first has
    num_gained: int  #: sequences that only the second has
    num_repacked: int  #: unchanged ones that lie elsewhere: in another pack, or at another place in it
    statistics: tuple[ValueDifference, ...]
    differences: tuple[SequenceDifference, ...]  #: the first few of each fate

    @property
    def counts(self) -> Mapping[str, int]:
        """Sequences of each fate but the unchanged."""
        return {
            "lost": self.num_lost,
            "gained": self.num_gained,
            "retokenized": self.num_retokenized,
            "mask_moved": self.num_masks_moved,
            "moved": self.num_moved,
        }

    @property
    def is_same(self) -> bool:
        """A run reads the same packs of both."""
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

    @property
    def is_same(self) -> bool:
        """A run reads the same packs of both."""
        return all(split.is_same for split in self.splits)

    def table(self) -> list[dict[str, Any]]:
        """Return the sequences that are shown, with the name of their split."""
        return [{"split": split.name, **asdict(one)} for split in self.splits for one in split.differences]
