"""The result of writing an artifact's report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.records.results import Result
from bridgepack.rules.judging.report import CheckReport


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenReport(Result):
    """The result of writing a report.

    Attributes:
        report: the report of `check` on the artifact.
        files: `output` and `sign_off` -> paths of the page and the sign-off page; None if not requested.
        num_doubted: sequences of the sign-off's sample whose loss mask another derivation contradicts.
    """

    report: CheckReport
    files: Mapping[str, Path | None]
    num_doubted: int = 0

    @property
    def fails(self) -> bool:
        """Whether the run is not ready: an error of `check`, or a loss mask in doubt."""
        return self.report.fails() or self.num_doubted > 0

    def headline(self) -> str:
        """Return what came out, in one line."""
        files = " and ".join(str(path) for path in self.files.values() if path is not None)
        return f"{files}; {self.report.headline()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        files = {name: None if path is None else str(path) for name, path in self.files.items()}
        return {**files, "num_doubted": self.num_doubted, "check": self.report.to_dict()}

    def table(self) -> Iterable[Mapping[str, Any]]:
        """Return the findings."""
        return self.report.table()
