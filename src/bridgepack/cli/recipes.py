"""The `bridgepack recipes` commands: list, show, new, schema."""

import sys
from pathlib import Path
from typing import Any

import click

from bridgepack.bridge.shipped import shipped_recipes
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import Count, PathOption, set_option
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.config.catalogue import catalogue
from bridgepack.config.load import load_recipe, parse_overrides
from bridgepack.config.schema import schema_text
from bridgepack.config.starting import write_new
from bridgepack.config.starting.nearest import Wish, recipes_of_model
from bridgepack.config.write import recipe_to_toml, recipe_to_yaml, written_values
from bridgepack.data.tokenizers.frameworks import import_transformers
from bridgepack.report.recipes import catalogue_table, describe_resolved, entry_to_dict, resolved_view, shipped_lines


@click.group()
def recipes() -> None:
    """List the recipes at hand, show one, write a new one.

    The catalogue is the folder recipes/ here, then the recipes that come with bridgepack.
    """


@recipes.command("list")
@click.option("--family", metavar="NAME", help="Only recipes of this family, the name of their file.")
@click.option("--bridge", "with_bridge", is_flag=True, help="Name Megatron-Bridge's own recipes, too; imports it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_recipes(family: str | None, with_bridge: bool, as_json: bool) -> int:
    """List the recipes of the catalogue.

    For each: family, method, GPUs, tokens of a pack, parallelism.
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
@click.option("--resolved", is_flag=True, help="Print every value with where it comes from.")
@click.option("--artifact", type=PathOption(), help="Packs that decide the steps [the recipe's own].")
@set_option
@click.option("--format", "form", type=click.Choice(["yaml", "toml"]), default="yaml", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(
    is_whole_process: bool | None,
    name: str,
    resolved: bool,
    artifact: Path | None,
    overrides: tuple[str, ...],
    form: str,
    as_json: bool,
) -> int:
    """Print the recipe NAME.

    NAME is of the catalogue, FILE.yaml, FILE.toml, FILE.py:FUNCTION or package.module:FUNCTION.
    """
    recipe = load_recipe(name, parse_overrides(overrides))
    if resolved or artifact is not None:
        if is_whole_process and Path(recipe.tokenizer.name_or_path).is_dir():
            import_transformers()  # packs are projected from tokenised rows
        view = resolved_view(recipe, artifact=artifact)
        print_json(view.to_dict()) if as_json else echo(describe_resolved(view))
    elif as_json:
        print_json(written_values(recipe))
    else:
        echo((recipe_to_toml if form == "toml" else recipe_to_yaml)(recipe).rstrip("\n"))
    return CLEAN


@recipes.command()
@click.argument("name", required=False)
@click.option("--model", metavar="MODEL", help="Hub id, folder, or a recipe of Megatron-Bridge or of the catalogue.")
@click.option("--gpus", "num_gpus", type=Count(), help="GPUs of the run.")
@click.option("--seq-length", type=Count(minimum=2), help="Runtime tokens of a pack.")
@click.option("--method", type=click.Choice(["full", "lora", "dora"]), help="What is trained [full].")
@click.option("--data", metavar="FILE", default="data/chats.jsonl", show_default=True, help="Training data.")
@click.option("--tokenizer", metavar="NAME", help="Hub id or folder of the tokenizer [the model's].")
@click.option("--output", type=PathOption("FILE"), help="File to write [NAME.yaml].")
@click.option("--dry-run", is_flag=True, help="Print the recipe; write nothing.")
@click.pass_context
def new(context: click.Context, /, output: Path | None, dry_run: bool, **wish: Any) -> int:
    """Write a recipe file to start from, with comments.

    It is NAME.yaml, names the columns of data that is there, and checks clean once it is. In a terminal, what is not
    given is asked, with what was found as the default.
    """
    from bridgepack.planning.new import new_recipe  # slow to import, as is what tokenises and what judges

    missing = [one for one in context.command.params if wish.get(one.name or "", "") is None and one.name in _NEEDED]
    if missing and not sys.stdin.isatty():
        raise click.MissingParameter(ctx=context, param=missing[0])
    wish |= _asked(wish) if missing else {}
    text = new_recipe(Wish(**wish), catalogue())
    if dry_run:
        echo(text.rstrip("\n"))
        return CLEAN
    path = write_new(output or Path(f"{wish['name']}.yaml"), text)
    echo(f"wrote {path}\nnext: bridgepack check {path}")
    return CLEAN


_NEEDED = frozenset({"name", "model", "num_gpus", "seq_length"})


def _asked(wish: dict[str, Any]) -> dict[str, Any]:
    """Return what is missing of a wish, as the user answers; what the catalogue and the disk have is shown."""
    model = wish["model"] or click.prompt("Model (hub id, folder, or a recipe's name)", err=True)
    same = [entry.recipe for entry in recipes_of_model(catalogue(), model) if entry.recipe]
    is_full = wish["method"] in (None, "full")
    fitting = [one for one in same if (one.method.kind == "full") == is_full]
    by_size = sorted(fitting, key=lambda one: (one.packing.packed_sequence_size, one.parallelism.num_gpus or 1))
    nearest = by_size[0] if by_size else None
    click.echo(f"  {len(same)} recipes of the catalogue are for it" if same else "  the catalogue has none", err=True)
    data = click.prompt("Data (file, folder or pattern)", default=wish["data"], err=True)
    is_there = Path(data).exists() or (not Path(data).is_absolute() and any(Path().glob(data)))
    click.echo("  found" if is_there else "  not there yet", err=True)
    gpus = nearest.parallelism.num_gpus if nearest else None
    size = nearest.packing.packed_sequence_size if nearest else 4096
    name = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2].lower().replace('.', 'p')}-sft"
    return {
        "model": model,
        "data": data,
        "num_gpus": wish["num_gpus"] or click.prompt("GPUs", type=click.IntRange(min=1), default=gpus or 8, err=True),
        "seq_length": wish["seq_length"] or click.prompt("Tokens of a pack", type=int, default=size, err=True),
        "name": wish["name"] or click.prompt("Name of the recipe", default=name, err=True),
    }


@recipes.command()
@click.option("--output", type=PathOption("FILE"), help="Write it to this file.")
def schema(output: Path | None) -> int:
    """Print the JSON Schema of recipe files.

    Editors and other programs read it.
    """
    from bridgepack.report.checks import staged_report

    with staged_report(output, schema_text()):
        pass
    if output is None:
        echo(schema_text().rstrip("\n"))
    return CLEAN
