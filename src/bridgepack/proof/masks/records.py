"""What a comparison of loss masks with independent derivations says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bridgepack.records.results import Result

#: What can be wrong with a row's tokens and mask.
Kind = Literal[
    "tokens-differ",
    "mask-malformed",
    "mask-shifted",
    "other-turn-trained",
    "reasoning-trained",
    "answer-not-trained",
    "turn-not-trained",
    "end-of-turn-not-trained",
    "tool-call-lost",
]
Outcome = Literal["agree", "disagree", "could not run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFinding:
    """One thing that is wrong with a row."""

    kind: Kind
    detail: str  #: what was found, in words
    advice: str
    derivations: tuple[str, ...] = ()  #: that disagree with the mask; empty where it is no matter of one
    message: int | None = None  #: it is in, from 1; None where that is not known
    token: int | None = None  #: first token it is about, from 0; None where it is about none
    num_tokens: int = 0
    #: `mask` or a derivation -> the text around it, with what is trained between ⟦ and ⟧
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowVerdict:
    """What derivations say of a row."""

    #: derivation -> why it could not judge all of the row; nothing where it judged every turn
    reasons: Mapping[str, tuple[str, ...]]
    silent: frozenset[str] = frozenset()  #: derivations that judged nothing of it
    findings: tuple[RowFinding, ...] = ()
    trains_empty_thoughts: bool = False  #: the mask trains a block of thoughts without a thought, as the recipe says

    @classmethod
    def unjudged(cls, names: Iterable[str], reason: str, *findings: RowFinding) -> RowVerdict:
        """Return a verdict of derivations that could judge nothing."""
        silent = frozenset(names)
        return cls(reasons=dict.fromkeys(silent, (reason,)), silent=silent, findings=findings)

    @property
    def num_judges(self) -> int:
        """Derivations that judged something."""
        return len(self.reasons) - len(self.silent)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskFinding:
    """A finding and where it is."""

    split: str
    file: str
    row: int  #: of that file, from 1
    finding: RowFinding


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivationCount:
    """How many sequences a derivation judged."""

    name: str
    num_judged: int
    num_in_part: int  #: some turns, or all but their headers
    num_not_judged: int
    reasons: Mapping[str, int]  #: why not -> sequences


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskReport(Result):
    """What a comparison found.

    Attributes:
        mode: `all` rows, or a `sample`.
        seed: of the sample; None for all.
        num_agreed: sequences whose mask is what every derivation that could judge it says.
        num_with_findings: sequences with one or more findings.
        num_not_judged: sequences that no derivation could judge.
        judged_by: number of derivations -> sequences that so many judged.
        drops: reason -> rows that gave no sequence.
        kinds: kind of finding -> sequences.
        notes: what else there is to know.
    """

    DERIVED: ClassVar = ("outcome",)
    TABLE: ClassVar = "findings"

    target: str
    mode: Literal["all", "sample"]
    seed: int | None
    num_rows: int
    num_rows_read: int
    num_sequences: int
    num_agreed: int
    num_with_findings: int
    num_not_judged: int
    judged_by: Mapping[int, int]
    drops: Mapping[str, int]
    derivations: tuple[DerivationCount, ...]
    kinds: Mapping[str, int]
    findings: tuple[MaskFinding, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Whether masks agree; it could not run where no sequence could be judged."""
        if self.num_with_findings:
            return "disagree"
        return "agree" if self.num_agreed else "could not run"
