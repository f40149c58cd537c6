"""The options of commands that write artifacts, and what `build` does after the worker server has started."""

from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target, recipe_target
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.cli.options import num_cores
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json
from bridgepack.config.load import parse_overrides
from bridgepack.data.build import build_artifact, planned_build
from bridgepack.data.results import BuildOptions, BuildResult, build_options
from bridgepack.data.workplace import complete_on_interrupt
from bridgepack.planning.balance import balance_for
from bridgepack.reporting.checks import counts_and_codes, rendered
from bridgepack.reporting.progress import TerminalProgress
from bridgepack.reporting.terminal import describe_build, describe_plan
from bridgepack.reporting.text import printable
from bridgepack.rules.engine.report import CheckReport
from bridgepack.rules.engine.text import report_to_dict


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
    """Build, or print what a build would do, and return the exit code; `options` are those of `build_options`."""
    target, chosen = recipe_target(recipe, parse_overrides(overrides)), chosen_options(**options)
    loaded = target.recipe
    assert loaded is not None
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
    summary = result.to_dict()
    judged: CheckReport | None = None
    page: Path | None = None
    with complete_on_interrupt(result.output):
        if not as_json:
            echo(describe_build(result, loaded))
        if is_checked or is_reported:
            judged, page = _judged(target, result, is_reported=is_reported, num_workers=chosen.num_workers)
        if judged and is_checked:
            summary["check"] = report_to_dict(judged)
            if not as_json:
                echo("\n" + rendered(judged, has_colour=has_colour()).rstrip("\n"))
        elif judged and not as_json:
            echo("\n" + counts_and_codes(judged))
        if page:
            summary["report"] = str(page)
            if not as_json:
                echo(f"{'\n' if is_checked else ''}report: {printable(str(page))}")
        if as_json:
            print_json(summary)
    return FINDINGS if judged and judged.fails() else CLEAN


def _judged(
    target: Target, result: BuildResult, *, is_reported: bool, num_workers: int
) -> tuple[CheckReport, Path | None]:
    with TerminalProgress() as progress:
        options = CheckOptions(
            artifact=result.output,
            overrides=target.overrides,
            num_workers=max(num_workers, 1),
            progress=progress,
        )
        target = target.reading(result.output)
        if not is_reported:
            return check_target(target, options), None
        from bridgepack.reporting.html.files import write_report  # slow to import

        written = write_report(result.output, options, target=target)
    return written.report, written.files["output"]


def chosen_options(**stated: Any) -> BuildOptions:
    """Return the build options from the values of the options that `cli.options.build_options` adds.

    Raises:
        ConfigError: an option has an impossible value, or Ray is not installed.
    """
    chosen = build_options(**stated, default_workers=num_cores())
    if chosen.ray is not None and chosen.ray.address is None:
        echo("no --ray-address: starting Ray on this machine; it is stopped at the end", err=True)
    return chosen
