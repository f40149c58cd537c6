"""The `report` command."""

from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.options import (
    Count,
    PathOption,
    PlaceOption,
    num_cores,
    quiet_option,
    shown_progress,
    trust_option,
)
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.reporting.results.checks import counts_and_codes
from bridgepack.reporting.text import printable


@click.command()
@click.argument("target", type=PlaceOption("TARGET"))
@click.option(
    "--artifact",
    type=PlaceOption(),
    help="Packs that TARGET, a recipe then, will read; both are judged (default: TARGET is the artifact).",
)
@click.option("--output", "-o", type=PathOption("FILE"), help="File of the page (default: report.html in ARTIFACT).")
@click.option(
    "--sign-off",
    type=PathOption("FILE"),
    is_flag=False,
    flag_value="sign-off.html",
    help="Also write the page that signs the run off (default of FILE: sign-off.html).",
)
@click.option(
    "--given",
    multiple=True,
    metavar="NAME=VALUE",
    help="State what packs of other tools do not record, e.g. eos_token_id=151645; repeatable.",
)
@trust_option
@click.option("--num-workers", type=Count(), help="Maximum worker processes (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
@quiet_option
def report(
    is_whole_process: bool | None,
    /,
    target: Path | str,
    artifact: Path | str | None,
    output: Path | None,
    as_json: bool,
    **arguments: Any,
) -> int:
    """Write a one-page HTML report of an artifact.

    The page shows the findings of `check`, kept and dropped rows, sources, lengths, fill, attention work, packs drawn
    and as text, and how to rebuild the artifact. It needs no script and no network. TARGET is an artifact, a folder or
    its URL in an object store; or a recipe with --artifact. A URL and packs of other tools need --output. Exits 1 when
    `check` finds an error, or --sign-off a loss mask in doubt.
    """
    if is_whole_process:
        api.import_transformers()
    with shown_progress() as progress:
        result = api.report(
            target if artifact is None else artifact,
            output=output,
            sign_off=arguments["sign_off"],
            recipe=None if artifact is None else str(target),
            given=api.parse_given(arguments["given"]),
            num_workers=arguments["num_workers"] or num_cores(),
            trust_remote_code=arguments["trust_remote_code"],
            progress=progress,
        )
    check_report = result.report
    if as_json:
        print_json(result.to_dict())
    else:
        for path in filter(None, result.files.values()):
            echo(f"wrote {printable(str(path))}")
        echo(counts_and_codes(check_report))
        if result.num_doubted:
            echo(f"loss masks in doubt: {result.num_doubted:,} of the sample; `bridgepack prove masks` shows them")
    return FINDINGS if result.fails else CLEAN
