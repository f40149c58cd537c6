"""The commands on an existing artifact: repack, inspect."""

from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.building import chosen_options
from bridgepack.cli.options import (
    Count,
    PathOption,
    PlaceOption,
    build_options,
    quiet_option,
    set_option,
    shown_progress,
    trust_option,
)
from bridgepack.cli.output import CLEAN, echo, has_colour, print_json
from bridgepack.reporting.results.artifacts import inspection_blocks
from bridgepack.reporting.results.builds import build_blocks, build_plan_blocks
from bridgepack.reporting.results.packs import pack_blocks
from bridgepack.reporting.screen import screen


@click.command()
@click.argument("artifact", type=PathOption())
@set_option
@click.option(
    "--output",
    "-o",
    type=PathOption("FOLDER"),
    help="Folder of the new artifact (default: NAME-FINGERPRINT beside the old).",
)
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@trust_option
@quiet_option
def repack(
    artifact: Path,
    overrides: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    dry_run: bool,
    trust_remote_code: bool,
    **options: Any,
) -> int:
    """Pack the sequences of ARTIFACT again, with other sizes.

    The tokens come from the token store; no source is read and nothing is tokenised. Only if preprocessing.over_long
    cuts conversations between exchanges, and the maximum length changes, are the sources read, and those conversations
    tokenised again.
    """
    changes, build_arguments = api.parse_overrides(overrides), chosen_options(**options)
    build_arguments["trust_remote_code"] = trust_remote_code
    if dry_run:
        plan = api.plan_repack(artifact, changes, output=output)
        print_json(plan.to_dict()) if as_json else echo(screen(build_plan_blocks(plan)))
        return CLEAN
    with shown_progress() as progress:
        result = api.repack(artifact, changes, output=output, progress=progress, **build_arguments)
    print_json(result.to_dict()) if as_json else echo(screen(build_blocks(result)))
    return CLEAN


@click.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--pack", type=Count(minimum=0), metavar="N", help="Show this pack of the split, counted from 0.")
@click.option("--split", type=click.Choice(["training", "validation"]), help="Split of the pack (default: training).")
@click.option("--limit", type=Count(), help="Maximum sequences to show of the pack (default: all).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def inspect(
    is_whole_process: bool | None,
    artifact: Path | str,
    pack: int | None,
    split: str | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Show statistics of ARTIFACT, or one pack with its text.

    ARTIFACT is a folder or its URL in an object store. Without --pack, it shows statistics and lengths; with it, one
    pack, its text and its trained tokens.
    """
    for name, value in (("split", split), ("limit", limit)):
        if pack is None and value is not None:
            raise click.UsageError(f"--{name} needs --pack; without it, inspect shows every split and no pack.")
    if pack is not None:
        if is_whole_process:
            api.import_transformers()
        pack_view = api.inspect(artifact, pack=pack, split=split)
        print_json(pack_view.to_dict()) if as_json else echo(
            screen(pack_blocks(pack_view, limit=limit), has_colour=has_colour())
        )
        return CLEAN
    view = api.inspect(artifact)
    print_json(view.to_dict()) if as_json else echo(screen(inspection_blocks(view)))
    return CLEAN
