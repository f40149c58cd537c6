"""The `build` command."""

from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import PlaceOption, build_options, quiet_option, set_option, trust_option


@click.command()
@click.argument("recipe", shell_complete=complete_recipe)
@click.option(
    "--output",
    "-o",
    type=PlaceOption("FOLDER|URL"),
    help="Output folder (default: the recipe's artifact, else artifacts/NAME-FINGERPRINT).",
)
@set_option
@build_options
@click.option("--check", "is_checked", is_flag=True, help="Then run `check` on recipe and artifact.")
@click.option("--report", "is_reported", is_flag=True, help="Then run `check` and write report.html into the artifact.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@trust_option
@quiet_option
def build(
    recipe: str, overrides: tuple[str, ...], is_checked: bool, is_reported: bool, dry_run: bool, **arguments: Any
) -> int:
    """Build the packed artifact of RECIPE, or resume an interrupted build.

    RECIPE is FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION or a name from `recipes list`. If the
    output is a URL (s3://, gs://, az://, msc://), the artifact is built in the default folder and copied to the URL.
    RECIPE's word on code of its tokenizer counts; --dry-run needs --trust-remote-code, too.
    With --check or --report, the exit code is 1 when `check` finds an error.
    """
    for name, is_asked in (("--check", is_checked), ("--report", is_reported)):
        if is_asked and dry_run:
            raise click.UsageError(f"{name} needs the packs that --dry-run does not build; give one of them.")
    api.start_workers(*(() if dry_run else (recipe, overrides)))  # a dry run needs no encoding engine
    # The worker server loads the tokenizer meanwhile; importing this before it starts would cost 0.7 s.
    from bridgepack.cli.building import build_recipe

    return build_recipe(recipe, overrides, is_checked=is_checked, is_reported=is_reported, dry_run=dry_run, **arguments)
