"""The commands `plan` and `preview`."""

from pathlib import Path

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, set_option, trust_option
from bridgepack.cli.output import CLEAN, echo, has_colour, print_json


@click.command()
@click.argument("recipe")
@click.option("--num-gpus", required=True, type=Count(), help="GPUs of the run.")
@click.option(
    "--gpu", metavar="GPU", default="h100-80gb", help="GPU type, e.g. a100-80gb, b200-180gb (default: h100-80gb)."
)
@click.option("--model", metavar="MODEL", help="Hub id, folder or Megatron-Bridge recipe (default: the recipe's).")
@click.option("--artifact", type=PathOption(), help="Artifact to take sequence lengths from (default: a data sample).")
@click.option("--store", type=PathOption("FOLDER"), help="Token store to take RECIPE's sequence lengths from.")
@click.option(
    "--calibrate", type=PathOption("FILE"), help="Training log of RECIPE; its step times calibrate the speed."
)
@click.option(
    "--dynamic-context", is_flag=True, help="Also ask the installed megatron-core for dynamic context parallelism."
)
@click.option("--output", "-o", type=PathOption("FILE"), help="Write the best candidate to this new recipe file.")
@set_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def plan(
    is_whole_process: bool | None,
    recipe: str,
    num_gpus: int,
    gpu: str,
    model: str | None,
    artifact: Path | None,
    store: Path | None,
    calibrate: Path | None,
    dynamic_context: bool,
    output: Path | None,
    overrides: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Rank pack sizes and parallel topologies for RECIPE on N GPUs.

    The ranking is an estimate for the recipe's model and data. Each candidate passes the rules of `check`. The output
    shows its fill, over-long sequences, the time that ranks wait for each other, memory, and tokens per second per GPU.
    """
    if is_whole_process and artifact is None:
        api.import_transformers()
    from bridgepack.reporting.results.plans import plan_blocks
    from bridgepack.reporting.screen import screen

    result = api.plan(
        recipe,
        num_gpus=num_gpus,
        gpu=gpu,
        model=model,
        artifact=artifact,
        store=store,
        calibrate=calibrate,
        dynamic_context=dynamic_context,
        output=output,
        overrides=api.parse_overrides(overrides),
        trust_remote_code=trust_remote_code,
    )
    print_json(result.to_dict()) if as_json else echo(screen(plan_blocks(result)))
    if output and not as_json:
        echo(f"wrote {output}\nnext: bridgepack check {output}")
    return CLEAN


@click.command()
@click.argument("recipe", shell_complete=complete_recipe)
@click.option("--num-rows", "-n", type=Count(minimum=0), default=5, help="Sequences to print per source (default: 5).")
@set_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def preview(
    is_whole_process: bool | None,
    recipe: str,
    num_rows: int,
    overrides: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Show what a build would do with RECIPE's data, without writing anything.

    For each source: its format, the first sequences with their trained text marked, token counts, and which rows would
    be dropped and why; then packs and steps. From large data it reads a few thousand rows, and the output says so.
    """
    if is_whole_process:
        api.import_transformers()
    from bridgepack.reporting.results.previews import preview_blocks
    from bridgepack.reporting.screen import screen

    result = api.preview(
        recipe, num_rows=num_rows, overrides=api.parse_overrides(overrides), trust_remote_code=trust_remote_code
    )
    print_json(result.to_dict()) if as_json else echo(screen(preview_blocks(result), has_colour=has_colour()))
    return CLEAN
