"""What the `build` command does, once the server of the workers has been started."""

from pathlib import Path
from typing import Any

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.cli.build_options import chosen_options
from bridgepack.cli.output import CLEAN, FINDINGS, echo, has_colour, print_json
from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.data.build import build_artifact, planned_build
from bridgepack.data.results import BuildResult
from bridgepack.data.workplace import complete_on_interrupt
from bridgepack.report.checks import rendered
from bridgepack.report.progress import TerminalProgress
from bridgepack.report.terminal import describe_build, describe_plan
from bridgepack.rules.engine.text import report_to_dict


def build_recipe(
    recipe: str,
    overrides: tuple[str, ...],
    *,
    output: Path | str | None,
    is_checked: bool,
    as_json: bool,
    dry_run: bool,
    **options: Any,
) -> int:
    """Build, or print what a build would do; `options` are those of `build_options`."""
    loaded, chosen = load_recipe(recipe, parse_overrides(overrides)), chosen_options(**options)
    if dry_run:
        with (
            TerminalProgress() as progress,
            planned_build(loaded, output=output, progress=progress, options=chosen) as plan,
        ):
            print_json(plan.summary()) if as_json else echo(describe_plan(plan))
        return CLEAN
    with TerminalProgress() as progress:
        result = build_artifact(loaded, output=output, progress=progress, options=chosen)
    with complete_on_interrupt(result.output):
        if not is_checked:
            print_json(result.summary()) if as_json else echo(describe_build(result, loaded))
            return CLEAN
        if not as_json:
            echo(describe_build(result, loaded) + "\n")
        return _check_built(recipe, overrides, result, num_workers=chosen.num_workers, as_json=as_json)


def _check_built(
    recipe: str, overrides: tuple[str, ...], result: BuildResult, *, num_workers: int, as_json: bool
) -> int:
    """Judge what was built together with its recipe."""
    with TerminalProgress() as progress:
        options = CheckOptions(
            artifact=result.output,
            overrides=parse_overrides(overrides),
            num_workers=max(num_workers, 1),
            progress=progress,
        )
        report = check_target(recipe, options)
    if as_json:
        print_json({**result.summary(), "check": report_to_dict(report)})
    else:
        echo(rendered(report, has_colour=has_colour()).rstrip("\n"))
    return FINDINGS if report.fails(strict=False) else CLEAN
