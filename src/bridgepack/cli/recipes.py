"""The `bridgepack recipes` commands: list, show, new, layouts, schema."""

import sys
from pathlib import Path
from typing import Any

import click

from bridgepack.bridge.refusing.asked import refusal_text, refusals_of
from bridgepack.bridge.shipped import shipped_recipes
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, set_option
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from bridgepack.config.load import catalogue, load_recipe, parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import Wish, recipes_of_model, write_new
from bridgepack.config.write import recipe_to_toml, recipe_to_yaml, schema_text, written_values
from bridgepack.data.tokenizers.frameworks import import_transformers
from bridgepack.planning.detecting import detect_data
from bridgepack.planning.fitting import Fit, fitted_batch, why_not_here
from bridgepack.planning.plan import new_recipe, with_splits
from bridgepack.reporting.checks import staged_report
from bridgepack.reporting.layouts import describe_detection, layout_to_dict, layouts_table
from bridgepack.reporting.recipes import catalogue_table, describe_resolved, entry_to_dict, resolved_view, shipped_lines
from bridgepack.reporting.text import printable


@click.group()
def recipes() -> None:
    """List the available recipes, show one, or write a new one.

    The catalogue holds the recipes of ./recipes, then those that come with bridgepack.
    """


@recipes.command("list")
@click.option("--family", metavar="NAME", help="Only recipes of this family, e.g. qwen3.")
@click.option("--bridge", "with_bridge", is_flag=True, help="Also list Megatron-Bridge's own recipes (imports it).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_recipes(family: str | None, with_bridge: bool, as_json: bool) -> int:
    """List the recipes of the catalogue.

    For each: family, method, GPUs, tokens per pack, parallelism.
    """
    entries = catalogue(family=family)
    shipped = list(shipped_recipes()) if with_bridge else None
    if as_json:
        print_json({"recipes": [entry_to_dict(entry) for entry in entries], **({"bridge": shipped} if shipped else {})})
    else:
        echo(catalogue_table(entries) + (f"\n{shipped_lines(shipped)}" if shipped else ""))
    return FINDINGS if any(entry.error for entry in entries) else CLEAN


@recipes.command()
@click.argument("name", shell_complete=complete_recipe)
@click.option("--resolved", is_flag=True, help="Print every value and where it comes from.")
@click.option("--artifact", type=PathOption(), help="Packs to compute the training steps from (default: the recipe's).")
@set_option
@click.option("--format", "form", type=click.Choice(["yaml", "toml"]), help="(default: yaml)")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(
    is_whole_process: bool | None,
    name: str,
    resolved: bool,
    artifact: Path | None,
    overrides: tuple[str, ...],
    form: str | None,
    as_json: bool,
) -> int:
    """Print the recipe NAME.

    NAME is a name in the catalogue, FILE.yaml, FILE.toml, FILE.py:FUNCTION or package.module:FUNCTION. What
    Megatron-Bridge refuses of it goes to standard error.
    """
    others = {"--json": as_json, "--resolved": resolved, "--artifact": artifact is not None}
    for other in (option for option, is_given in others.items() if form and is_given):
        raise click.UsageError(f"--format and {other} contradict each other; give one of them.")
    recipe = load_recipe(name, parse_overrides(overrides))
    if resolved or artifact is not None:
        if is_whole_process and Path(recipe.tokenizer.name_or_path).is_dir():
            import_transformers()  # the number of packs is estimated from tokenised rows
        view = resolved_view(recipe, artifact=artifact)
        print_json(view.to_dict()) if as_json else echo(describe_resolved(view))
    elif as_json:
        print_json(written_values(recipe))
    else:
        echo((recipe_to_toml if form == "toml" else recipe_to_yaml)(recipe).rstrip("\n"))
    for finding in refusals_of(recipe):
        echo(printable(f"check finds an error: {refusal_text(finding)}"), err=True)
    return CLEAN


@recipes.command()
@click.argument("name", required=False)
@click.option("--model", metavar="MODEL", help="Hub id, folder, or a recipe of Megatron-Bridge or the catalogue.")
@click.option("--gpus", "num_gpus", type=Count(), help="GPUs of the run.")
@click.option("--seq-length", type=Count(minimum=2), help="Runtime tokens per pack.")
@click.option("--method", type=click.Choice(["full", "lora", "dora"]), help="What is trained (default: full).")
@click.option("--data", metavar="FILE", default="data/chats.jsonl", help="Training data (default: data/chats.jsonl).")
@click.option("--layout", metavar="NAME", help="Layout of the rows; `none` writes none (default: detected).")
@click.option("--tokenizer", metavar="NAME", help="Hub id or folder of the tokenizer (default: the model's).")
@click.option("--output", type=PathOption("FILE"), help="File to write (default: NAME.yaml).")
@click.option("--dry-run", is_flag=True, help="Print the recipe; write nothing.")
@click.pass_context
def new(context: click.Context, /, output: Path | None, dry_run: bool, layout: str | None, **wish: Any) -> int:
    """Write a commented recipe file to start from.

    The file is NAME.yaml. If the data exists, the layout of its rows is detected, one of those that `recipes layouts`
    lists, the batch is fitted to a sample of its rows (if the tokenizer is here, too), and the recipe passes `check`.
    In a terminal, the command asks for missing values and proposes defaults.
    """
    missing = [one for one in context.command.params if wish.get(one.name or "", "") is None and one.name in _NEEDED]
    if missing and not sys.stdin.isatty():
        raise click.MissingParameter(ctx=context, param=missing[0])
    wish |= _asked(wish) if missing else {}
    fits: list[Fit] = []

    def fit(recipe: SFTRecipe) -> Fit:
        if context.obj and not why_not_here(recipe):
            import_transformers()  # first: a plain import of transformers loads the frameworks, which takes seconds
        fits.append(fitted_batch(recipe))
        return fits[-1]

    detection = detect_data(with_splits(Wish(**wish))[0].data, layout)
    text = new_recipe(Wish(detection=detection, **wish), catalogue(), fit)
    if detection is not None:
        echo(describe_detection(detection), err=dry_run)
    if dry_run:
        echo(printable(fits[0].line), err=True)
        echo(text.rstrip("\n"))
        return CLEAN
    path = write_new(output or Path(f"{wish['name']}.yaml"), text)
    echo(f"{printable(fits[0].line)}\nwrote {path}\nnext: bridgepack check {path}")
    return CLEAN


_NEEDED = frozenset({"name", "model", "num_gpus", "seq_length"})


def _asked(wish: dict[str, Any]) -> dict[str, Any]:
    model = wish["model"] or click.prompt("Model (hub id, folder, or a recipe's name)", err=True)
    same = [entry.recipe for entry in recipes_of_model(catalogue(), model) if entry.recipe]
    is_full = wish["method"] in (None, "full")
    fitting = [one for one in same if (one.method.kind == "full") == is_full]
    by_size = sorted(fitting, key=lambda one: (one.packing.packed_sequence_size, one.parallelism.num_gpus or 1))
    nearest = by_size[0] if by_size else None
    click.echo(f"  {len(same)} recipes in the catalogue train it" if same else "  the catalogue has none", err=True)
    data = click.prompt("Data (file, folder or pattern)", default=wish["data"], err=True)
    is_there = Path(data).exists() or (not Path(data).is_absolute() and any(Path().glob(data)))
    click.echo("  found" if is_there else "  not found yet", err=True)
    gpus = nearest.parallelism.num_gpus if nearest else None
    size = nearest.packing.packed_sequence_size if nearest else 4096
    name = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2].lower().replace('.', 'p')}-sft"
    return {
        "model": model,
        "data": data,
        "num_gpus": wish["num_gpus"] or click.prompt("GPUs", type=click.IntRange(min=1), default=gpus or 8, err=True),
        "seq_length": wish["seq_length"] or click.prompt("Tokens per pack", type=int, default=size, err=True),
        "name": wish["name"] or click.prompt("Name of the recipe", default=name, err=True),
    }


@recipes.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def layouts(as_json: bool) -> int:
    """List the layouts of data that are known by name.

    `recipes new` detects them, or takes one with --layout. For each: what it is, its columns, and the page that
    describes it.
    """
    if as_json:
        print_json({"layouts": [layout_to_dict(entry) for entry in PUBLIC_LAYOUTS]})
    else:
        echo(layouts_table(PUBLIC_LAYOUTS))
    return CLEAN


@recipes.command()
@click.option("--output", type=PathOption("FILE"), help="Write the schema to this file.")
def schema(output: Path | None) -> int:
    """Print the JSON Schema of recipe files."""
    with staged_report(output, schema_text()):
        pass
    if output is None:
        echo(schema_text().rstrip("\n"))
    return CLEAN
