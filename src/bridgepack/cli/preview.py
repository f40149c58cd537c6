"""The `preview` command."""

import click

from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, set_option
from bridgepack.cli.output import CLEAN, echo, has_colour, print_json
from bridgepack.data.tokenizers.frameworks import import_transformers


@click.command()
@click.argument("recipe", shell_complete=complete_recipe)
@click.option("-n", "num_rows", type=Count(minimum=0), default=5, help="Sequences to print per source (default: 5).")
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def preview(
    is_whole_process: bool | None, recipe: str, num_rows: int, overrides: tuple[str, ...], as_json: bool
) -> int:
    """Show what a build would do with RECIPE's data, without writing anything.

    For each source: its format, the first sequences with their trained text marked, token counts, and which rows would
    be dropped and why; then packs and steps. From large data it reads a few thousand rows, and the output says so.
    """
    if is_whole_process:
        import_transformers()  # first: a plain import of transformers loads the frameworks, which takes seconds
    from bridgepack.config.load import load_recipe, parse_overrides
    from bridgepack.planning.preview import preview_recipe
    from bridgepack.report.plans import describe_preview

    found = preview_recipe(load_recipe(recipe, parse_overrides(overrides)), num_rows=num_rows)
    print_json(found.to_dict()) if as_json else echo(describe_preview(found, has_colour=has_colour()))
    return CLEAN
