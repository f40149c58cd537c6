"""Results of a verification: what was compared, what differs, and why."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bridgepack.records.results import Result
from bridgepack.records.words import count_text

Outcome = Literal["same", "differs", "could not run"]
#: Possible causes of a difference between an artifact and its sources, in the order of the report.
Cause = Literal[
    "artifact changed", "input changed", "tokenizer changed", "chat template changed", "library version changed"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Result of one comparison."""

    name: str
    outcome: Outcome  #: `same`, `differs`, or `could not run`
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RowDifference:
    """A sequence that differs between the artifact and its sources."""

    split: str
    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    sequence: int | None  #: position in the pack; None if the pack as a whole differs
    file: str | None  #: input file of the sequence; None if unknown
    row: int | None  #: row of that file, from 1
    column: str  #: column of the shard that differs; `plan` if the plan differs
    token: int | None  #: first stored token that differs, relative to the sequence's start; None if there is none
    in_artifact: Any  #: value in the artifact
    from_source: Any
    causes: tuple[Cause, ...] = ()  #: possible causes, most likely first
    cause: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingredient:
    """A dependency of the rows that has changed since the build."""

    cause: Cause
    name: str  #: name of the file, library or setting
    then: str | None  #: value in the manifest
    now: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport(Result):
    """Result of a verification.

    Attributes:
        mode: `all` or `sample`.
        seed: seed of the sample; None for all.
        checks: the comparisons, in order.
        changed: ingredients that have changed since the build.
        differences: the first few rows that differ, in pack order.
        notes: further remarks.
    """

    DERIVED: ClassVar = ("outcome",)
    TABLE: ClassVar = "differences"

    artifact: str
    mode: Literal["all", "sample"]
    seed: int | None
    num_packs: int
    num_packs_compared: int
    num_sequences_compared: int
    num_packs_different: int
    checks: tuple[Check, ...]
    changed: tuple[Ingredient, ...]
    differences: tuple[RowDifference, ...]
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """Return what came out of which target, in one line."""
        return f"{self.artifact}: {self.summary()}"

    def summary(self) -> str:
        """Return what came out, without the target."""
        amount = f"{self.num_packs_compared:,} of {count_text(self.num_packs, 'pack')} compared"
        return f"{self.outcome}; {amount}, {self.num_packs_different:,} differ"

    @property
    def outcome(self) -> Outcome:
        """`differs` if any check differs, else `could not run` if any could not run, else `same`."""
        outcomes = {check.outcome for check in self.checks}
        worst: tuple[Outcome, ...] = ("differs", "could not run")
        return next((outcome for outcome in worst if outcome in outcomes), "same")
