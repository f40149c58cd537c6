"""bridgepack's tasks in nemo-run's command line: `nemorun bridgepack build|check|train ...`.

`python -m bridgepack.nemo_cli build|check|train ...` runs the same tasks. In: recipes by name and overrides in
nemo-run's syntax. Out: tasks that nemo-run calls. Read first: `tasks`.
"""

import sys

import typer

from bridgepack.nemo_cli.tasks import RecipeContext, TrainContext
from bridgepack.nemo_cli.tasks import as_config as as_config
from bridgepack.nemo_cli.tasks import build as build
from bridgepack.nemo_cli.tasks import check as check
from bridgepack.nemo_cli.tasks import recipe_of as recipe_of
from bridgepack.nemo_cli.tasks import train as train


def main(arguments: list[str] | None = None) -> None:
    """Run nemo-run's command line with bridgepack's tasks only.

    It needs no entry point and does not import those of other packages: with Megatron-Bridge installed, `nemorun`
    imports all of it, which takes half a minute.
    """
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, help="bridgepack's tasks for nemo-run.")
    for function in (build, check, train):
        options = {"help": (function.__doc__ or "").partition("\n")[0]}
        context = TrainContext if function is train else RecipeContext
        context.cli_command(app, function.__name__, function, command_kwargs=options, is_main=True)
    app(sys.argv[1:] if arguments is None else arguments, prog_name="bridgepack.nemo_cli")
