"""Results of comparing trained answers with served ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from bridgepack.proof.compared import ComparedRows, InRow
from bridgepack.records import ServedRecord
from bridgepack.records.flags import LostFlags
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedFinding(InRow):
    """An answer that a server does not show as it is trained."""

    kind: str  #: value of a `ServedKind`
    turn: int  #: its message, from 1
    num_trained_tokens: int
    detail: str
    token: int | None  #: first token that differs, from 0; None if it is unknown
    trained_text: str  #: text around it in the packed tokens
    served_text: str  #: text around it in what is served; empty if the text is the same


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedReport(ComparedRows):
    """Result of a comparison with what is served; rows as of `ComparedRows`.

    Attributes:
        record: counts of answers and trained tokens by kind.
        cures: kind that occurs -> what to do about it.
        findings: the first answers that differ.
        lost_flags: added tokens whose flags a server keeps, so that no answer has the tokens that are served.
    """

    DERIVED: ClassVar = ("outcome",)
    TABLE: ClassVar = "findings"

    record: ServedRecord
    cures: Mapping[str, str]
    findings: tuple[ServedFinding, ...]
    lost_flags: tuple[LostFlags, ...] = ()

    def headline(self) -> str:
        """Return what came out of which target, in one line."""
        return f"{self.target}: {self.summary()}"

    def summary(self) -> str:
        """Return what came out, without the target."""
        num_differing = sum(count.num_answers for count in self.record.differing)
        tokens = ", ".join(f"{token.token!r} loses its flags" for token in self.lost_flags)
        counts = f"{num_differing:,} of {count_text(self.record.num_answers, 'answer')} differ"
        return f"{self.outcome}; {counts}{f'; {tokens}' if tokens else ''}"

    @property
    def outcome(self) -> Literal["equal", "differs", "could not run"]:
        """Whether every answer is served as trained; `could not run` without an answer."""
        if self.record.differing or (self.lost_flags and self.record.num_answers):
            return "differs"
        return "equal" if self.record.num_answers else "could not run"
