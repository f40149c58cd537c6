"""What a verification says: what was compared, what differs, and why."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bridgepack.records.results import Result

Outcome = Literal["same", "differs", "could not run"]
#: What can make an artifact differ from its sources, in the order in which it is named.
Cause = Literal[
    "artifact changed", "input changed", "tokenizer changed", "chat template changed", "library version changed"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was compared."""

    name: str
    outcome: Outcome  #: `same`, `differs`, or `could not run`
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RowDifference:
    """A sequence that the sources do not give as the artifact has it."""

    split: str
    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    sequence: int | None  #: position in the pack; None where the pack as a whole differs
    file: str | None  #: the sequence came from; None where that is not known
    row: int | None  #: of that file, from 1
    column: str  #: of the shard that differs; `plan` where the plan does
    token: int | None  #: first stored token that differs, counted from the sequence's first; None where there is none
    in_artifact: Any  #: what the artifact has there
    from_source: Any
    causes: tuple[Cause, ...] = ()  #: what can be the reason, most likely first
    cause: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingredient:
    """Something that rows depend on and that is not what it was."""

    cause: Cause
    name: str  #: of the file, the library, or the setting
    then: str | None  #: as the manifest has it
    now: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport(Result):
    """What a verification found.

    Attributes:
        mode: `all` or `sample`.
        origin: what packs were derived from, `sources` or `store`.
        seed: of the sample; None for all.
        checks: what was compared, in order.
        changed: ingredients that are not what they were.
        differences: the first few rows that differ, in the order of packs.
        notes: what else is worth knowing.
    """

    DERIVED: ClassVar = ("outcome",)
    TABLE: ClassVar = "differences"

    artifact: str
    mode: Literal["all", "sample"]
    origin: Literal["sources", "store"]
    seed: int | None
    num_packs: int
    num_packs_compared: int
    num_sequences_compared: int
    num_packs_different: int
    checks: tuple[Check, ...]
    changed: tuple[Ingredient, ...]
    differences: tuple[RowDifference, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """`differs` where anything does, else `could not run` where something could not, else `same`."""
        found = {check.outcome for check in self.checks}
        worst: tuple[Outcome, ...] = ("differs", "could not run")
        return next((outcome for outcome in worst if outcome in found), "same")
