"""The options of commands that write artifacts, and what `build` does after the worker server has started."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bridgepack import api
from bridgepack.cli.options import num_cores, shown_progress
from bridgepack.cli.output import CLEAN, FINDINGS, complete_on_interrupt, echo, has_colour, print_json
from bridgepack.reporting.formats import render_report
from bridgepack.reporting.results.builds import build_blocks, build_plan_blocks
from bridgepack.reporting.results.checks import counts_and_codes
from bridgepack.reporting.screen import screen
from bridgepack.reporting.text import printable


def build_recipe(
    recipe: str,
    overrides: tuple[str, ...],
    *,
    output: Path | str | None,
    is_checked: bool,
    is_reported: bool,
    as_json: bool,
    dry_run: bool,
    trust_remote_code: bool,
    **options: Any,
) -> int:
    """Build, or print what a build would do, and return the exit code; `options` are those of `build_options`."""
    target = api.recipe_target(recipe, api.parse_overrides(overrides))
    settings = {"output": output, **chosen_options(**options)}
    if dry_run:
        with shown_progress() as progress:
            plan = api.plan_build(target, progress=progress, trust_remote_code=trust_remote_code, **settings)
        print_json(plan.to_dict()) if as_json else echo(screen(build_plan_blocks(plan)))
        return CLEAN
    with shown_progress() as progress:
        result = api.build(target, progress=progress, **settings)
    summary = result.to_dict()
    with complete_on_interrupt(result.output):
        if not as_json:
            echo(screen(build_blocks(result, target.recipe)))
        check_report, page = None, None
        if is_checked or is_reported:
            check_report, page = _check_packs(target, result.output, options["num_workers"], is_reported=is_reported)
        if check_report and is_checked:
            summary["check"] = check_report.to_dict()
            if not as_json:
                echo("\n" + render_report(check_report, has_colour=has_colour()).rstrip("\n"))
        elif check_report and not as_json:
            echo("\n" + counts_and_codes(check_report))
        if page:
            summary["report"] = str(page)
            if not as_json:
                echo(f"{'\n' if is_checked else ''}report: {printable(str(page))}")
        if as_json:
            print_json(summary)
    return FINDINGS if check_report and check_report.fails() else CLEAN


def _check_packs(target: Any, packs: Path, num_workers: int | None, *, is_reported: bool) -> tuple[Any, Path | None]:
    """Return the report of a check of the packs and their recipe, and the page if there is one."""
    with shown_progress() as progress:
        how: dict[str, Any] = {"num_workers": num_workers or num_cores(), "progress": progress}
        if not is_reported:
            return api.check(target, artifact=packs, **how), None
        page_report = api.report(packs, recipe=target, **how)
    return page_report.report, page_report.files["output"]


def chosen_options(
    *, num_workers: int | None, engine: str, ray_address: str | None, **other_options: Any
) -> dict[str, Any]:
    """Return the arguments of a build from the values of the options that `cli.options.build_options` adds."""
    is_own = (ray_address or os.environ.get("RAY_ADDRESS") or "local") == "local"
    if engine == "ray" and is_own and find_spec("ray") is not None:
        echo("no --ray-address: starting Ray on this machine; it is stopped at the end", err=True)
    workers = num_cores() if num_workers is None and engine == "local" else num_workers
    return {"num_workers": workers, "engine": engine, "ray_address": ray_address, **other_options}
