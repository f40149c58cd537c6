"""The command that shows the losses of a run."""

from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.options import Count, PathOption
from bridgepack.cli.output import CLEAN, echo, has_colour, print_json
from bridgepack.reporting.results.losses import loss_blocks
from bridgepack.reporting.screen import screen


@click.command()
@click.argument("run", type=PathOption())
@click.option("--step", type=Count(), help="The rows of this step with their losses, highest first.")
@click.option(
    "--num-rows", "-n", type=Count(), help="Rows furthest above their source; with --step, its rows (default: 20)."
)
@click.option("--split", type=click.Choice(["training", "validation"]), help="Split of the rows (default: training).")
@click.option("--artifact", type=PathOption("FOLDER"), help="Folder of the packs (default: the one that the run read).")
@click.option("--output", "-o", type=PathOption("FILE"), help="Also write the losses of all rows, as Parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def losses(run: Path, as_json: bool, **arguments: Any) -> int:
    """Show the loss of each source of RUN, and the rows far above their source.

    RUN is the folder of a run. Losses of rows are there if the run had losses.by_row true.
    """
    report = api.losses(run, **{name: value for name, value in arguments.items() if value is not None})
    print_json(report.to_dict()) if as_json else echo(screen(loss_blocks(report), has_colour=has_colour()))
    return CLEAN
