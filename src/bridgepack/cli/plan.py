"""The `plan` command."""

from pathlib import Path

import click

from bridgepack.cli.options import Count, PathOption, set_option
from bridgepack.cli.output import CLEAN, echo, print_json
from bridgepack.data.tokenizers.frameworks import import_transformers


@click.command()
@click.argument("recipe")
@click.option("--gpus", "num_gpus", required=True, type=Count(), help="GPUs of the run.")
@click.option(
    "--gpu", metavar="GPU", default="h100-80gb", help="Kind of GPU, e.g. a100-80gb, h200-141gb, b200-180gb [h100-80gb]."
)
@click.option(
    "--model", metavar="MODEL", help="Model to plan for: hub id, folder, or a recipe of Megatron-Bridge [recipe's]."
)
@click.option("--artifact", type=PathOption(), help="Packs whose sequences' lengths are taken [a sample of the data].")
@click.option("--store", type=PathOption("FOLDER"), help="Token store that has RECIPE's rows, whose lengths are taken.")
@click.option(
    "--calibrate", "log", type=PathOption("FILE"), help="Log of a run of RECIPE; its step times set the speed."
)
@click.option("--write", "output", type=PathOption("FILE"), help="Write the best as a recipe to this new YAML file.")
@set_option
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
    log: Path | None,
    output: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Rank pack sizes and topologies for RECIPE on GPUs.

    By estimate, for its model and data. Each candidate is legal by the rules of `check`, and comes with its fill, the
    sequences that are too long for it, how long ranks wait for each other, memory, and the tokens that a GPU trains in
    a second.
    """
    from bridgepack.config.starting import refuse_taken, write_new

    if output:
        refuse_taken(output, option="--write")
    if is_whole_process and artifact is None:
        import_transformers()  # before anything imports it with the frameworks, which takes seconds
    from bridgepack import api
    from bridgepack.config.load import parse_overrides
    from bridgepack.config.write import recipe_to_yaml
    from bridgepack.report.plans import describe_plan

    found = api.plan(
        recipe,
        num_gpus=num_gpus,
        gpu=gpu,
        model=model,
        artifact=artifact,
        store=store,
        log=log,
        overrides=parse_overrides(overrides),
    )
    path = write_new(output, recipe_to_yaml(found.best_recipe), option="--write") if output else None
    print_json(found.to_dict()) if as_json else echo(describe_plan(found))
    if path and not as_json:
        echo(f"wrote {path}\nnext: bridgepack check {path}")
    return CLEAN
