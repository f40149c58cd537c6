"""Results of comparing loss masks with independent derivations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bridgepack.proof.compared import ComparedRows, InRow
from bridgepack.records import MaskArray, TokenArray
from bridgepack.records.words import count_text

#: Kinds of problems with a row's tokens and mask.
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
    """One problem of a row."""

    kind: Kind
    detail: str  #: what was found, in words
    advice: str
    derivations: tuple[str, ...] = ()  #: derivations that disagree with the mask; empty if not about a derivation
    message: int | None = None  #: its message, from 1; None if unknown
    token: int | None = None  #: first affected token, from 0; None if none is
    num_tokens: int = 0
    #: `mask` or a derivation -> the text around it, with trained text between ⟦ and ⟧
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltSequence:
    """Tokens and mask that a build makes of a row, or of a piece of its conversation."""

    input_ids: TokenArray  #: shape [num_tokens], int32
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned
    #: positions of the messages that it trains, of a conversation that becomes several sequences; empty otherwise
    turns: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()  #: positions of messages that were taken out on purpose, after that
    stop: str = ""  #: text behind its render, the beginning of the next turn
    is_final: bool = False  #: the mask is that of the packs, after `labels_after_eos`


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltRow:
    """A row as its file has it, with what a build makes of it."""

    split: str
    file: str  #: name for messages
    row: int  #: from 1
    columns: Mapping[str, Any]
    sequences: tuple[BuiltSequence, ...] = ()
    drop: str = ""  #: why there are no sequences
    losses: tuple[tuple[str, str], ...] = ()  #: (kind, detail) of content that its text lacks


@dataclass(frozen=True, kw_only=True, slots=True)
class RowVerdict:
    """The derivations' verdict on a row."""

    #: derivation -> why it could not judge all of the row; empty if it judged every turn
    reasons: Mapping[str, tuple[str, ...]]
    silent: frozenset[str] = frozenset()  #: derivations that judged nothing of it
    findings: tuple[RowFinding, ...] = ()
    trains_prompt: bool = False  #: the mask trains a part of the generation prompt, which a server writes
    trains_empty_thoughts: bool = False  #: the mask trains a block of thoughts without a thought, as the recipe says

    @classmethod
    def without_judgement(cls, names: Iterable[str], reason: str, *findings: RowFinding) -> RowVerdict:
        """Return the verdict of derivations that could judge nothing."""
        silent = frozenset(names)
        return cls(reasons=dict.fromkeys(silent, (reason,)), silent=silent, findings=findings)

    @property
    def num_judges(self) -> int:
        """Number of derivations that judged something."""
        return len(self.reasons) - len(self.silent)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskFinding(InRow):
    """A finding and its location."""

    finding: RowFinding


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivationCount:
    """How many sequences a derivation judged."""

    name: str
    num_judged: int
    num_in_part: int  #: sequences of which it judged some turns, or all but their headers
    num_not_judged: int
    reasons: Mapping[str, int]  #: why not -> sequences


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskReport(ComparedRows):
    """Result of a comparison; rows as of `ComparedRows`.

    Attributes:
        num_agreed: sequences whose mask every judging derivation confirms.
        num_with_findings: sequences with one or more findings.
        num_not_judged: sequences that no derivation could judge.
        judged_by: number of derivations -> sequences that this many judged.
        kinds: kind of finding -> sequences.
        notes: further remarks.
    """

    DERIVED: ClassVar = ("outcome",)
    TABLE: ClassVar = "findings"

    num_sequences: int
    num_agreed: int
    num_with_findings: int
    num_not_judged: int
    judged_by: Mapping[int, int]
    derivations: tuple[DerivationCount, ...]
    kinds: Mapping[str, int]
    findings: tuple[MaskFinding, ...]
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """Return what came out of which target, in one line."""
        return f"{self.target}: {self.summary()}"

    def summary(self) -> str:
        """Return what came out, without the target."""
        agreement = f"{self.num_agreed:,} of {count_text(self.num_sequences, 'sequence')} confirmed"
        return f"{self.outcome}; {agreement}, {self.num_with_findings:,} with findings"

    @property
    def outcome(self) -> Outcome:
        """Whether masks agree; `could not run` if no sequence could be judged."""
        if self.num_with_findings:
            return "disagree"
        return "agree" if self.num_agreed else "could not run"
