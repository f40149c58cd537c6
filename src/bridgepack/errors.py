"""Exceptions that users see: each message names the field, the value, what is allowed and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that is wrong in what a user wrote.

    Attributes:
        message: what is wrong, what is allowed, what to do.
        field: dotted path of the field; empty where it is none.
        file: that it is written in; empty where there is none.
        line: 1-based line in it; None where it is not known.
    """

    message: str
    field: str = ""
    file: str = ""
    line: int | None = None


class BridgepackError(Exception):
    """Base of every error that is the user's to act on; the CLI prints it and exits with code 2.

    Attributes:
        problems: the same, one for each thing that is wrong; empty where the text says it all.
    """

    problems: tuple[Problem, ...] = ()


class ConfigError(BridgepackError):
    """A recipe, override or command-line value that is unknown, impossible or contradictory."""


class DataError(BridgepackError):
    """Input data that is missing, unreadable, or that the recipe says must stop the build."""


class TokenizerError(BridgepackError):
    """A tokenizer or chat template that cannot be loaded or cannot do what the recipe asks of it."""


class ArtifactError(BridgepackError):
    """A packed artifact that is missing, incomplete, corrupted or of another format version."""


class StoreError(BridgepackError):
    """A token store that cannot be used, lacks what is asked of it, or has a broken file."""


class ArtifactInUseError(ArtifactError):
    """An artifact that another build is writing at this moment."""


class LaunchError(BridgepackError):
    """A run that the check accepts, and that nemo-run or the cluster cannot start."""


class LaunchRefusedError(BridgepackError):
    """A run that `check` rejects, and that is therefore not submitted; its text has the findings.

    Attributes:
        report: the CheckReport.
    """

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type[LaunchRefusedError], tuple[str, Any]]:
        """Pickle by its two fields, so that it crosses process boundaries."""
        return (LaunchRefusedError, (str(self), self.report))


class RowError(Exception):
    """One input row that cannot become a sequence; the recipe decides whether it is dropped or stops the build.

    Attributes:
        reason: a member of `records.DropReason`, as its string value.
        detail: what was found, for the ledger; at most a few hundred characters.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail[:500]

    def __reduce__(self) -> tuple[type[RowError], tuple[str, str]]:
        """Pickle by its two fields, so that it crosses process boundaries."""
        return (RowError, (self.reason, self.detail))
