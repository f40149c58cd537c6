"""Exceptions that users see: each message names the field, the value, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake in what a user wrote.

    Attributes:
        message: what is wrong, what is allowed, what to do.
        field: dotted path of the field; empty if the problem is not in a field.
        file: file that has the field; empty if there is none.
        line: 1-based line in `file`; None if unknown.
        code: of the rule that says it; empty if no rule does.
    """

    message: str
    field: str = ""
    file: str = ""
    line: int | None = None
    code: str = ""


def text_of_mistakes(messages: Sequence[str]) -> str:
    """Return one message as it is, several as a list."""
    return messages[0] if len(messages) == 1 else "\n  ".join([f"{len(messages)} fields are wrong:", *messages])


def unusable(error: OSError) -> str:
    """Return what to say of a path that the system does not let us use."""
    place = f"{error.filename!r}: " if error.filename else ""
    return f"{place}{error.strerror or error}. Check the path and its permissions."


def forget_interrupt() -> None:
    """Let the process end with its exit code after a KeyboardInterrupt that was caught.

    `python -m` notes a KeyboardInterrupt that left code in a text, such as that of a dataclass as it is made, and ends
    the process by SIGINT even if it was caught since; the next code in a text clears the note.
    """
    exec("")


class BridgepackError(Exception):
    """Base of every error that the user can fix; the CLI prints it and exits with code 2.

    Attributes:
        problems: the mistakes, one by one; empty if the text is complete without them.
    """

    problems: tuple[Problem, ...] = ()

    def __init__(self, *texts: object, field: str = "", code: str = "") -> None:
        """Make an error of a text, about a field if it is about one, and with the code of the rule that says it."""
        super().__init__(*texts)
        if field or code:
            self.problems = (Problem(message=str(self), field=field, code=code),)


@contextmanager
def about(field: str) -> Iterator[None]:
    """Say that the errors raised inside are about a field, where they name none themselves."""
    try:
        yield
    except BridgepackError as error:
        error.problems = error.problems or (Problem(message=str(error), field=field),)
        raise


class ConfigError(BridgepackError):
    """A recipe, override or command-line value that is unknown, impossible or contradictory."""


class DataError(BridgepackError):
    """Input data that is missing or unreadable, or a bad row when the recipe says to stop at bad rows."""


class TokenizerError(BridgepackError):
    """A tokenizer or chat template that cannot be loaded or cannot do what the recipe asks of it."""


class ArtifactError(BridgepackError):
    """A packed artifact that is missing, incomplete, corrupted or of another format version."""


class UnreachableError(Exception):
    """An object store that did not answer, so that nothing is known of an artifact in it; exit code 2.

    It is no BridgepackError, as readers of an artifact turn those into findings about it.
    """


class StoreError(BridgepackError):
    """A token store that cannot be used, lacks the tokens asked for, or has a broken file."""


class ArtifactInUseError(ArtifactError):
    """An artifact that another build is writing at this moment."""


class LaunchError(BridgepackError):
    """A run that passes the check but that nemo-run or the cluster cannot start."""


class LaunchRefusedError(BridgepackError):
    """A run that is not submitted because `check` rejects it; the text has a line for each error and warning.

    Attributes:
        report: the CheckReport, which commands print.
    """

    def __init__(self, message: str, report: Any, advice: str = "") -> None:
        super().__init__(message)
        self.message, self.report, self.advice = message, report, advice

    def __str__(self) -> str:
        """Return what was refused, the findings of the report, and what else can be done."""
        findings = (finding for finding in self.report.findings if finding.severity != "advice")
        lines = [
            f"{finding.severity}[{finding.code}] {finding.where}: {finding.found}; allowed: {finding.allowed}. "
            f"{finding.fix}".rstrip()
            for finding in findings
        ]
        return "\n\n".join(filter(None, (self.message, "\n".join(lines), self.advice)))

    def __reduce__(self) -> tuple[type[LaunchRefusedError], tuple[str, Any, str]]:
        """Pickle by its fields, so that it crosses process boundaries."""
        return (LaunchRefusedError, (self.message, self.report, self.advice))


class RowError(Exception):
    """One input row that cannot become a sequence; the recipe decides whether it is dropped or stops the build.

    Attributes:
        reason: string value of a `records.DropReason`.
        detail: what was found, for the ledger; at most a few hundred characters.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail[:500]

    def __reduce__(self) -> tuple[type[RowError], tuple[str, str]]:
        """Pickle by its two fields, so that it crosses process boundaries."""
        return (RowError, (self.reason, self.detail))
