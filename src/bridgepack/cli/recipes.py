"""The commands on recipes: new, and `recipes list | show | layouts | schema`."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, set_option, trust_option
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.reporting.results.layouts import detection_blocks, layout_blocks
from bridgepack.reporting.results.recipes import catalogue_blocks, resolved_blocks
from bridgepack.reporting.results.served import choices_blocks
from bridgepack.reporting.screen import screen
from bridgepack.reporting.text import printable


@click.group()
def recipes() -> None:
    """List the available recipes, show one; list layouts, print the schema.

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
    listing = api.list_recipes(family=family, bridge=with_bridge)
    if as_json:
        print_json(listing.to_dict())
    else:
        echo(screen(catalogue_blocks(listing.entries, listing.bridge)))
    return FINDINGS if any(entry.error for entry in listing.entries) else CLEAN


@recipes.command()
@click.argument("name", shell_complete=complete_recipe)
@click.option("--resolved", "shows_values", is_flag=True, help="Print every value and where it comes from.")
@click.option("--artifact", type=PathOption(), help="Packs to compute the training steps from (default: the recipe's).")
@set_option
@trust_option
@click.option("--format", "output_format", type=click.Choice(["yaml", "toml"]), help="(default: yaml)")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(
    is_whole_process: bool | None,
    name: str,
    shows_values: bool,
    artifact: Path | None,
    overrides: tuple[str, ...],
    trust_remote_code: bool,
    output_format: str | None,
    as_json: bool,
) -> int:
    """Print the recipe NAME.

    NAME is a name in the catalogue, FILE.yaml, FILE.toml, FILE.py:FUNCTION or package.module:FUNCTION. What
    Megatron-Bridge refuses of it goes to standard error.
    """
    flags = {"--json": as_json, "--resolved": shows_values, "--artifact": artifact is not None}
    for flag in (option for option, is_given in flags.items() if output_format and is_given):
        raise click.UsageError(f"--format and {flag} contradict each other; give one of them.")
    target = api.recipe_target(name, api.parse_overrides(overrides))
    listing = api.show_recipe(target)
    if shows_values or artifact is not None:
        if is_whole_process and Path(listing.recipe.tokenizer.name_or_path).is_dir():
            api.import_transformers()  # the number of packs is estimated from tokenised rows
        view = api.resolve_recipe(target, artifact=artifact, trust_remote_code=trust_remote_code)
        print_json(view.to_dict()) if as_json else echo(screen(resolved_blocks(view)))
    elif as_json:
        print_json(listing.to_dict())
    else:
        echo((listing.to_toml() if output_format == "toml" else listing.to_yaml()).rstrip("\n"))
    for refusal in listing.refusals:
        echo(printable(f"check finds an error: {refusal}"), err=True)
    return CLEAN


def _named_files(
    context: click.Context,  # noqa: ARG001 (click gives it)
    parameter: click.Parameter,
    values: tuple[str, ...],
) -> dict[str, str]:
    """Return name -> file of NAME=FILE options, in order."""
    files: dict[str, str] = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not (name and separator and path):
            raise click.BadParameter(f"is {value!r}; allowed: NAME=FILE. Give the set a name.", param=parameter)
        if name in files:
            raise click.BadParameter(f"names {name!r} twice; allowed: a name for each set.", param=parameter)
        files[name] = path
    return files


@click.command()
@click.argument("name", required=False)
@click.option("--model", metavar="MODEL", help="Hub id, folder, or a recipe of Megatron-Bridge or the catalogue.")
@click.option("--num-gpus", type=Count(), help="GPUs of the run.")
@click.option("--seq-length", type=Count(minimum=2), help="Runtime tokens per pack.")
@click.option("--method", type=click.Choice(["full", "lora", "dora"]), help="What is trained (default: full).")
@click.option("--data", metavar="FILE", help="Training data (default: data/chats.jsonl).")
@click.option(
    "--validation",
    metavar="NAME=FILE",
    multiple=True,
    callback=_named_files,
    help="A validation set, whose loss is logged by its name; may be repeated (default: a part of the rows).",
)
@click.option("--layout", metavar="NAME", help="Layout of the rows; `none` writes none (default: detected).")
@click.option("--tokenizer", metavar="NAME", help="Hub id or folder of the tokenizer (default: the model's).")
@click.option("--output", "-o", type=PathOption("FILE"), help="File to write (default: NAME.yaml).")
@click.option("--dry-run", is_flag=True, help="Print the recipe; write nothing.")
@click.pass_context
def new(context: click.Context, /, output: Path | None, dry_run: bool, layout: str | None, **wish: Any) -> int:
    """Write a commented recipe file to start from.

    The file is NAME.yaml. The layout of the data's rows is detected, one of those that `recipes layouts` lists, the
    batch is fitted to a sample of its rows (if the tokenizer is here, too), and the recipe passes `check`. Data that
    --data names has to be here, or a URL; without it, data/chats.jsonl may come later.
    In a terminal, the command asks for missing values and proposes defaults. It ends with the command line that says
    the same.
    """
    missing = [
        parameter
        for parameter in context.command.params
        if wish.get(parameter.name or "", "") is None and parameter.name in _NEEDED
    ]
    if missing and not sys.stdin.isatty():
        raise click.MissingParameter(ctx=context, param=missing[0])
    wish |= _ask(wish) if missing else {}
    recipe = api.new_recipe(layout=layout, before_tokenizer=api.import_transformers if context.obj else None, **wish)
    if recipe.detection is not None:
        echo(screen(detection_blocks(recipe.detection)), err=dry_run)
    for part, detection in recipe.parts.items():
        echo(screen(detection_blocks(detection, part)), err=dry_run)
    if recipe.fit.choice is not None:
        echo(screen(choices_blocks(recipe.fit.choices, recipe.fit.choice)), err=dry_run)
    if dry_run:
        echo(printable(recipe.fit.line), err=True)
        echo(recipe.text.rstrip("\n"))
        return CLEAN
    path = recipe.write(output)
    place = "" if output is None else f" --output {shlex.quote(str(output))}"
    echo(f"{printable(recipe.fit.line)}\nwrote {path}\nnext: bridgepack check {path}")
    echo(printable(f"the same again: {recipe.command}{place}"))
    return CLEAN


#: Proposed in a terminal; it may come later.
_DATA = "data/chats.jsonl"
_NEEDED = frozenset({"name", "model", "num_gpus", "seq_length"})


def _ask(wish: dict[str, Any]) -> dict[str, Any]:
    model = wish["model"] or click.prompt("Model (hub id, folder, or a recipe's name)", err=True)
    matches = api.recipes_like(model)
    is_full = wish["method"] in (None, "full")
    fitting = [recipe for recipe in matches if (recipe.method.kind == "full") == is_full]
    by_size = sorted(
        fitting, key=lambda recipe: (recipe.packing.packed_sequence_size, recipe.parallelism.num_gpus or 1)
    )
    nearest = by_size[0] if by_size else None
    click.echo(
        f"  {len(matches)} recipes in the catalogue train it" if matches else "  the catalogue has none", err=True
    )
    data = click.prompt("Data (file, folder or pattern)", default=wish["data"] or _DATA, err=True)
    is_there = Path(data).exists() or (not Path(data).is_absolute() and any(Path().glob(data)))
    click.echo("  found" if is_there else "  not found yet", err=True)
    gpus = nearest.parallelism.num_gpus if nearest else None
    size = nearest.packing.packed_sequence_size if nearest else 4096
    name = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2].lower().replace('.', 'p')}-sft"
    return {
        "model": model,
        "data": None if data == _DATA and not is_there else data,
        "num_gpus": wish["num_gpus"] or click.prompt("GPUs", type=Count(), default=gpus or 8, err=True),
        "seq_length": wish["seq_length"]
        or click.prompt("Tokens per pack", type=Count(minimum=2), default=size, err=True),
        "name": wish["name"] or click.prompt("Name of the recipe", default=name, err=True),
    }


@recipes.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def layouts(as_json: bool) -> int:
    """List the layouts of data that are known by name.

    `new` detects them, or takes one with --layout. For each: what it is, its columns, and the page that
    describes it.
    """
    listing = api.list_layouts()
    print_json(listing.to_dict()) if as_json else echo(screen(layout_blocks(listing.layouts)))
    return CLEAN


@recipes.command()
@click.option("--cluster", is_flag=True, help="Print the schema of cluster files.")
@click.option("--output", "-o", type=PathOption("FILE"), help="Write the schema to this file.")
def schema(cluster: bool, output: Path | None) -> int:
    """Print the JSON Schema of recipe files."""
    text = api.recipe_schema(cluster=cluster)
    with api.staged_report(output, text):
        pass
    if output is None:
        echo(text.rstrip("\n"))
    return CLEAN
