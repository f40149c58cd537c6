"""The `prove` commands: sources, masks, served, training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bridgepack import api
from bridgepack.cli.completion import complete_recipe
from bridgepack.cli.options import (
    Count,
    PathOption,
    PlaceOption,
    num_cores,
    overrides_option,
    quiet_option,
    set_option,
    shown_progress,
)
from bridgepack.cli.output import CLEAN, COULD_NOT_RUN, FINDINGS, echo, print_json
from bridgepack.cli.training import training
from bridgepack.reporting.proofs import describe_masks, describe_verification
from bridgepack.reporting.served import describe_served


@click.group()
def prove() -> None:
    """Prove sources, masks, what is served, or what training computes."""


prove.add_command(training)


@prove.command()
@click.argument("artifact", type=PlaceOption())
@click.option("--all", "is_all", is_flag=True, help="Rebuild everything and compare every byte.")
@click.option("--sample", type=Count(), help="Packs to rebuild; all shards are always hashed (default: 100).")
@click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0).")
@overrides_option("Set the current path of a source; repeatable.")
@click.option("--scratch", type=PathOption("FOLDER"), help="Folder for --all (default: the system's temporary folder).")
@click.option("--workers", type=Count(), help="Maximum worker processes for --all (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
def sources(artifact: Path | str, **arguments: Any) -> int:
    """Rebuild packs of ARTIFACT from its sources.

    ARTIFACT is a folder or its URL in an object store.
    Exits 1 when anything differs, and names the first difference and what changed: an input, the tokenizer, the chat
    template, a library, or the artifact itself. Exits 2 when sources are missing, and reports what could be compared
    without them.
    """
    _check_extent(arguments, ("scratch", "workers"))
    with shown_progress() as progress:
        stated = {"num_packs": arguments["sample"], "seed": arguments["seed"]}
        report = api.prove.sources(
            artifact,
            overrides=api.parse_overrides(arguments["overrides"]),
            num_workers=arguments["workers"] or num_cores(),
            scratch=arguments["scratch"],
            progress=progress,
            **_extent(stated, is_all=arguments["is_all"]),
        )
    print_json(report.to_dict()) if arguments["as_json"] else echo(describe_verification(report))
    return {"same": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _check_extent(arguments: dict[str, Any], only_with_all: tuple[str, ...] = ()) -> None:
    for name in ("sample", "seed"):
        if arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--all and --{name} contradict each other; give one of them.")
    for name in only_with_all:
        if not arguments["is_all"] and arguments[name] is not None:
            raise click.UsageError(f"--{name} needs --all; a sample builds nothing.")


def _extent(stated: dict[str, Any], *, is_all: bool) -> dict[str, Any]:
    """Return the options that were stated; None for the first, the number of packs or rows, is all of them."""
    first = next(iter(stated))
    return {name: value for name, value in stated.items() if value is not None or (is_all and name == first)}


_ROW_OPTIONS = (
    click.argument("target", shell_complete=complete_recipe),
    click.option("--all", "is_all", is_flag=True, help="Compare every row."),
    click.option("--sample", type=Count(), help="Rows to compare, over all files (default: 1000)."),
    click.option("--seed", type=Count(minimum=0), help="Seed of the sample (default: 0)."),
    click.option("--split", type=click.Choice(["training", "validation"]), help="Split to compare (default: both)."),
    set_option,
    click.option("--limit", type=Count(minimum=0), help="Maximum findings shown; all are counted (default: 10)."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.pass_obj,
    quiet_option,
)


def _row_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the options of a proof that reads rows of sources added."""
    for option in reversed(_ROW_OPTIONS):
        command = option(command)
    return command


@prove.command()
@_row_options
def masks(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Compare the loss masks of TARGET with masks derived anew.

    Exits 1 when any mask disagrees.

    TARGET is a recipe, as for `build`, or an artifact, whose own recipe is used; --set then only sets the paths of its
    sources. Masks of conversations are derived from the template's generation blocks, from renders of conversation
    prefixes, and from the text around turns. Exits 2 when no row could be compared.
    """
    report = _of_rows(api.prove.masks, target, arguments, is_whole_process=is_whole_process)
    print_json(report.to_dict()) if arguments["as_json"] else echo(describe_masks(report))
    return {"agree": CLEAN, "disagree": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


@prove.command()
@_row_options
def served(is_whole_process: bool | None, /, target: str, **arguments: Any) -> int:
    """Compare trained answers with what is served.

    Each trained answer is compared with what a server sends before it and what the model must then write. Exits 1
    when any answer differs.

    TARGET is a recipe, as for `build`, or an artifact, whose own recipe is used; --set then only sets the paths of its
    sources and the recipe's serving section. Exits 2 when no row could be compared.
    """
    report = _of_rows(api.prove.served, target, arguments, is_whole_process=is_whole_process)
    print_json(report.to_dict()) if arguments["as_json"] else echo(describe_served(report))
    return {"equal": CLEAN, "differs": FINDINGS, "could not run": COULD_NOT_RUN}[report.outcome]


def _of_rows(
    proof: Callable[..., Any], target: str, arguments: dict[str, Any], *, is_whole_process: bool | None
) -> Any:
    """Return the report of a proof that reads rows of sources."""
    _check_extent(arguments)
    if is_whole_process and Path(target).is_dir():
        api.import_transformers()
    with shown_progress() as progress:
        stated = {"num_rows": arguments["sample"], "limit": arguments["limit"], "seed": arguments["seed"]}
        return proof(
            target,
            split=arguments["split"],
            overrides=api.parse_overrides(arguments["overrides"]),
            progress=progress,
            **_extent(stated, is_all=arguments["is_all"]),
        )
