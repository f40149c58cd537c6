"""What the comparison of two artifacts says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: What can become of a sequence, in the order in which it is told.
Fate = Literal["lost", "gained", "retokenized", "mask_moved", "moved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencePlace:
    """Where a sequence lies in one artifact.

    Attributes:
        row: of that file, from 1.
        pack: row of the split, from 0.
        runtime_length: without alignment padding.
    """

    file: str
    row: int
    pack: int
    position: int
    runtime_length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedTokens:
    """Neighbouring tokens that only one of two masks trains.

    Attributes:
        start: first token, stored, counted from the sequence's first.
        stop: one past the last.
        is_trained_now: the second artifact trains them.
    """

    start: int
    stop: int
    is_trained_now: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceDifference:
    """One sequence that is not the same in both.

    Attributes:
        first: in the first artifact; None where it was gained.
        second: in the second artifact; None where it was lost.
        is_same_input: its file has the same bytes in both.
        token: first token that differs, stored, counted from the sequence's first; None where ids are the same.
        text: its first tokens; of a re-tokenised one, those around the first that differs, in both.
        masks: what moved of the loss mask.
        num_mask_tokens: tokens that only one of the masks trains.
    """

    fate: Fate
    first: SequencePlace | None
    second: SequencePlace | None
    is_same_input: bool
    token: int | None = None
    text: tuple[str, ...] = ()
    masks: tuple[MovedTokens, ...] = ()
    num_mask_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueDifference:
    """A setting or a statistic in both artifacts.

    Attributes:
        name: dotted.
        first: in the first artifact; None where it has none.
    """

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDiff:
    """One split in both artifacts.

    Attributes:
        name: `training` or `validation`.
        num_unchanged: sequences of the same source row with the same content.
        num_moved: sequences with the same content under another source row.
        num_masks_moved: sequences with the same tokens and another mask.
        num_retokenized: sequences of the same source row with other tokens.
        num_lost: sequences that only the first has.
        num_gained: sequences that only the second has.
        num_repacked: unchanged ones that lie elsewhere: in another pack, or at another place in it.
        differences: the first few of each fate.
    """

    name: str
    num_unchanged: int
    num_moved: int
    num_masks_moved: int
    num_retokenized: int
    num_lost: int
    num_gained: int
    num_repacked: int
    statistics: tuple[ValueDifference, ...]
    differences: tuple[SequenceDifference, ...]

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
class DiffReport:
    """How two artifacts differ.

    Attributes:
        settings: recipe, derived values, tokenizer and versions that differ.
        inputs: hashes of input files that differ, by name.
    """

    first: str
    second: str
    settings: tuple[ValueDifference, ...]
    inputs: tuple[ValueDifference, ...]
    splits: tuple[SplitDiff, ...]

    @property
    def is_same(self) -> bool:
        """A run reads the same packs of both."""
        return all(split.is_same for split in self.splits)
