"""A check's report in the form that was asked for, and what fixing did."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bridgepack.errors import ConfigError
from bridgepack.rules.output import render_json, render_text
from bridgepack.rules.registry import ALL_RULES
from bridgepack.rules.report import CheckReport
from bridgepack.rules.sarif import render_github, render_sarif

if TYPE_CHECKING:
    from bridgepack.fixing import Fixed


def rendered(report: CheckReport, form: str, *, has_colour: bool, shows_advice: bool, shows_skipped: bool) -> str:
    """Return a report as `text`, `json`, `sarif` or `github`."""
    if form == "json":
        return render_json(report)
    if form == "sarif":
        return render_sarif(report, ALL_RULES)
    if form == "github":
        return render_github(report)
    return render_text(report, has_colour=has_colour, shows_advice=shows_advice, shows_skipped=shows_skipped)


def write_report(path: Path, text: str) -> None:
    """Write a report as a whole: under another name first.

    Raises:
        ConfigError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise ConfigError(
            f"--output is {str(path)!r}; it cannot be written: {error.strerror}. Choose another."
        ) from None


def describe_fix(outcome: Fixed) -> str:
    """Return what was changed, one line each, and the command that a re-pack needs."""
    if outcome.edit is None:
        return "\n".join(["nothing to fix", *outcome.by_hand, ""])
    lines = [f"fixed {change.path} = {change.value}: {change.why}" for change in outcome.changes]
    if outcome.needs_repack:
        lines.append(f"packs that exist already must be built again: bridgepack build {outcome.edit.path}")
    return "\n".join([*lines, *outcome.by_hand]) + "\n"
