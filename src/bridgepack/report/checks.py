"""Renders a check's report in the chosen format, and the result of fixing."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgepack.errors import ConfigError
from bridgepack.report.text import printable
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.sarif import render_github, render_gitlab, render_sarif
from bridgepack.rules.engine.text import render_json, render_text, value_text
from bridgepack.rules.registry import ALL_RULES

if TYPE_CHECKING:
    from bridgepack.checking.fix import Fixed


def rendered(
    report: CheckReport,
    form: str = "text",
    *,
    has_colour: bool = False,
    shows_advice: bool = False,
    shows_skipped: bool = False,
) -> str:
    """Return a report as `text`, `json`, `sarif`, `github` or `gitlab`."""
    if form == "json":
        return render_json(report)
    if form == "sarif":
        return render_sarif(report, ALL_RULES)
    if form == "github":
        return render_github(report)
    if form == "gitlab":
        return render_gitlab([replace(one, file=one.file or report.target_path) for one in report.findings])
    return render_text(
        _printable(report), has_colour=has_colour, shows_advice=shows_advice, shows_skipped=shows_skipped
    )


def check_report_path(path: Path | None, target: str, environment: str | None) -> None:
    """Check that a report's path is not one of the files that the check reads.

    Raises:
        ConfigError: it is one of them, and would be overwritten.
    """
    for name in (target, target.rpartition(":")[0], environment):
        if path is not None and name and os.path.exists(path) and os.path.exists(name) and path.samefile(name):  # noqa: PTH110
            raise ConfigError(f"--output is {str(path)!r}, which is read. Choose another.")


@contextmanager
def staged_report(path: Path | None, text: str, *, option: str = "--output") -> Iterator[None]:
    """Write a report to its path after the body has succeeded; check first that the path is writable.

    Nothing is written if the path is None; a device or a pipe is written to directly.

    Raises:
        ConfigError: the path cannot be written.
    """
    if path is None:
        yield
        return
    with ExitStack() as cleaning:
        with _explained(path, option):
            is_special = path.exists() and not path.is_file() and not path.is_dir()
            temporary = None if is_special else _staged(path.resolve(), text, cleaning)
        yield
        with _explained(path, option):
            if temporary is None:
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
            else:
                temporary.replace(path.resolve())


def _staged(path: Path, text: str, cleaning: ExitStack) -> Path:
    """Return a temporary file with the report beside its final path; `cleaning` removes it."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    cleaning.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return Path(name)


@contextmanager
def _explained(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # the latter for a link that leads to itself
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} is {str(path)!r}; it cannot be written: {reason}. Choose another.") from None


def describe_fix(outcome: Fixed) -> str:
    """Return one line per change, one per change not made, and the command for a re-pack."""
    lines = [f"fixed {change.path} = {value_text(change.value)}: {change.why}" for change in outcome.changes]
    lines += [f"not fixed: {reason}" for reason in outcome.by_hand]
    if outcome.needs_repack:
        how = f": {outcome.build_command}" if outcome.build_command else ""
        lines.append(f"packs that exist already must be built again{how}")
    return "\n".join(lines or ["nothing to fix"]) + "\n"


def describe_diff(outcome: Fixed) -> str:
    """Return one line per change that the diff does not contain, or that there is nothing to change."""
    lines = [f"not in the diff: {reason}" for reason in outcome.by_hand]
    if outcome.edit is None and not lines:
        lines.append("nothing to change")
    return "".join(f"{line}\n" for line in lines)


def _printable(report: CheckReport) -> CheckReport:
    """Return a report without terminal control characters in its texts."""
    findings = []
    for finding in report.findings:
        names = ("where", "file", "found", "allowed", "fix")
        texts: Any = {name: printable(getattr(finding, name)) for name in names}
        findings.append(replace(finding, **texts, examples=tuple(map(printable, finding.examples))))
    suppressed = tuple(replace(item, reason=printable(item.reason)) for item in report.suppressed)
    skipped = tuple(replace(rule, reason=printable(rule.reason)) for rule in report.rules_skipped)
    return replace(report, findings=tuple(findings), suppressed=suppressed, rules_skipped=skipped)
