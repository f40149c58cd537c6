"""What the `build` command does, once the server of the workers has been started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.cli.build_options import chosen_options
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json
from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.data.build import build_artifact, planned_build
from bridgepack.data.results import BuildResult
from bridgepack.data.workplace import complete_on_interrupt
from bridgepack.planning.balance import balance_for
from bridgepack.report.checks import rendered
from bridgepack.report.progress import TerminalProgress
from bridgepack.report.terminal import describe_build, describe_plan
from bridgepack.report.text import printable
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.text import report_to_dict

if TYPE_CHECKING:
    from bridgepack.report.html.files import WrittenReport


def build_recipe(
    recipe: str,
    overrides: tuple[str, ...],
    *,
    output: Path | str | None,
    is_checked: bool,
    is_reported: bool,
    as_json: bool,
    dry_run: bool,
    **options: Any,
) -> int:
    """Build, or print what a build would do; `options` are those of `build_options`."""
    loaded, chosen = load_recipe(recipe, parse_overrides(overrides)), chosen_options(**options)
    balance = balance_for(loaded)
    if dry_run:
        with (
            TerminalProgress() as progress,
            planned_build(loaded, output=output, progress=progress, options=chosen, balance=balance) as plan,
        ):
            print_json(plan.summary()) if as_json else echo(describe_plan(plan))
        return CLEAN
    with TerminalProgress() as progress:
        result = build_artifact(loaded, output=output, progress=progress, options=chosen, balance=balance)
    summary, judged = result.to_dict(), []
    with complete_on_interrupt(result.output):
        if not as_json:
            echo(describe_build(result, loaded))
        if is_checked:
            judged.append(_check_built(recipe, overrides, result, num_workers=chosen.num_workers))
            summary["check"] = report_to_dict(judged[-1])
            if not as_json:
                echo("\n" + rendered(judged[-1], has_colour=has_colour()).rstrip("\n"))
        if is_reported:
            written = _write_report(result, num_workers=chosen.num_workers)
            judged.append(written.report)
            summary["report"] = str(written.files["output"])
            if not as_json:
                echo(f"\nreport: {printable(summary['report'])}")
        if as_json:
            print_json(summary)
    return FINDINGS if any(report.fails() for report in judged) else CLEAN


def _check_built(recipe: str, overrides: tuple[str, ...], result: BuildResult, *, num_workers: int) -> CheckReport:
    """Return what the rules say of what was built together with its recipe."""
    with TerminalProgress() as progress:
        options = CheckOptions(
            artifact=result.output,
            overrides=parse_overrides(overrides),
            num_workers=max(num_workers, 1),
            progress=progress,
        )
        return check_target(recipe, options)


def _write_report(result: BuildResult, *, num_workers: int) -> WrittenReport:
    from bridgepack.report.html.files import write_report

    with TerminalProgress() as progress:
        return write_report(result.output, CheckOptions(num_workers=max(num_workers, 1), progress=progress))
