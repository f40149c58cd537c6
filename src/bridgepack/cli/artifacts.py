"""The commands on an existing artifact: repack, inspect."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bridgepack.cli.building import chosen_options
from bridgepack.cli.options import Count, PathOption, PlaceOption, build_options, set_option
from bridgepack.cli.output import CLEAN, echo, has_colour, print_json
from bridgepack.config.load import parse_overrides
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import view_pack
from bridgepack.data.reading.remote import artifact_place
from bridgepack.data.repack import plan_repack, repack_artifact
from bridgepack.data.tokenizers.frameworks import import_transformers
from bridgepack.errors import BridgepackError
from bridgepack.planning.balance import balance_of_repack, waiting_in
from bridgepack.proof.packs import recorded_recipe
from bridgepack.reporting.progress import TerminalProgress
from bridgepack.reporting.terminal import (
    describe_build,
    describe_histogram,
    describe_manifest,
    describe_plan,
    draw_pack,
)


@click.command()
@click.argument("artifact", type=PathOption())
@set_option
@click.option(
    "--output", type=PathOption("FOLDER"), help="Folder of the new artifact (default: NAME-FINGERPRINT beside the old)."
)
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
def repack(
    artifact: Path, overrides: tuple[str, ...], output: Path | None, as_json: bool, dry_run: bool, **options: Any
) -> int:
    """Pack the sequences of ARTIFACT again, with other sizes.

    The tokens come from the token store; no source is read and nothing is tokenised.
    """
    changes, chosen = parse_overrides(overrides), chosen_options(**options)
    balance = balance_of_repack(artifact, changes)
    if dry_run:
        plan = plan_repack(artifact, changes, output=output, balance=balance)
        print_json(plan.summary()) if as_json else echo(describe_plan(plan, source=plan.source))
        return CLEAN
    with TerminalProgress() as progress:
        result = repack_artifact(artifact, changes, output=output, progress=progress, options=chosen, balance=balance)
    print_json(result.to_dict()) if as_json else echo(describe_build(result))
    return CLEAN


@click.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--row", type=int, metavar="N", help="Show this pack: 0-based row of the split.")
@click.option("--split", type=click.Choice(["training", "validation"]), help="Split of the pack (default: training).")
@click.option("--limit", type=Count(), help="Maximum sequences to show of the pack (default: all).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def inspect(
    is_whole_process: bool | None,
    artifact: Path | str,
    row: int | None,
    split: str | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Show statistics of ARTIFACT, or one pack with its text.

    ARTIFACT is a folder or its URL in an object store. Without --row, it shows statistics and lengths; with it, one
    pack, its text and its trained tokens.
    """
    for name, value in (("split", split), ("limit", limit)):
        if row is None and value is not None:
            raise click.UsageError(f"--{name} needs --row; without one every split is shown, and no pack is drawn.")
    opened = Artifact(artifact_place(artifact))
    if row is not None:
        if is_whole_process:
            import_transformers()  # first: a plain import of transformers loads the frameworks, which takes seconds
        view = view_pack(opened, split or "training", row)
        print_json(view.to_dict()) if as_json else echo(draw_pack(view, has_colour=has_colour(), limit=limit))
        return CLEAN
    manifest = opened.manifest
    try:
        waiting = waiting_in(opened, recorded_recipe(opened, {}))
    except BridgepackError:  # the artifact records no recipe, or no token cost is known
        waiting = None
    if as_json:
        print_json({**asdict(manifest), "waiting": None if waiting is None else asdict(waiting)})
        return CLEAN
    echo(describe_manifest(manifest, opened.folder, waiting))
    for record in manifest.splits:
        echo("\n" + "\n".join(describe_histogram(record)))
    return CLEAN
