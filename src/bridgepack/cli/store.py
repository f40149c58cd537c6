"""Commands on stored tokens: `repack`, and `store list | prune | verify`; and the options of builds."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from bridgepack.cli.options import Age, Count, PathOption, num_cores
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json

_STORE_HELP = "Folder of the token store [$BRIDGEPACK_STORE, or .bridgepack/tokens beside the artifact]."


#: Gives the options of a build; what they are made of takes time to import.
type Options = Callable[[], Any]


def build_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say how a build works; the command gets one `options`, a function that returns them."""

    @click.option("--workers", type=Count(), help="Most processes [the machine's cores].")
    @click.option("--memory", metavar="SIZE", help="Memory to use, e.g. 8G [three quarters of what is free].")
    @click.option("--store", type=PathOption(), help=_STORE_HELP)
    @click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="Where tasks run [local].")
    @click.option("--ray-address", metavar="HOST:PORT", help="Head of a Ray cluster [$RAY_ADDRESS, or Ray here].")
    @wraps(command)
    def with_options(
        workers: int | None,
        memory: str | None,
        store: Path | None,
        engine: str,
        ray_address: str | None,
        **arguments: Any,
    ) -> int:
        def options() -> Any:
            from bridgepack.data.results import build_options as options_of

            chosen = options_of(
                store=store,
                num_workers=workers,
                memory=memory,
                engine=engine,
                ray_address=ray_address,
                default_workers=num_cores(),
            )
            if chosen.ray is not None and chosen.ray.address is None:
                echo("no --ray-address: Ray is started on this machine and stopped at the end", err=True)
            return chosen

        return command(options=options, **arguments)

    return with_options


@click.command()
@click.argument("artifact", type=PathOption())
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a recipe field; repeatable.")
@click.option("--output", type=PathOption(), help="Folder of the new artifact [NAME-FINGERPRINT beside the old].")
@build_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
def repack(
    artifact: Path, overrides: tuple[str, ...], output: Path | None, options: Options, as_json: bool, dry_run: bool
) -> int:
    """Pack the sequences of ARTIFACT anew, with other sizes or for another topology.

    The tokens come from the token store; the inputs are not read and nothing is tokenised.
    """
    from bridgepack.config.load import parse_overrides
    from bridgepack.data.repack import plan_repack, repack_artifact
    from bridgepack.report.progress import TerminalProgress
    from bridgepack.report.stores import describe_repack_plan
    from bridgepack.report.terminal import describe_build

    changes, chosen = parse_overrides(overrides), options()
    if dry_run:
        plan = plan_repack(artifact, changes, output=output)
        print_json(plan.summary()) if as_json else echo(describe_repack_plan(plan))
        return CLEAN
    with TerminalProgress() as progress:
        result = repack_artifact(artifact, changes, output=output, progress=progress, options=chosen)
    print_json(result.summary()) if as_json else echo(describe_build(result))
    return CLEAN


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Look at the token store, empty it, verify it."""


_store_option = click.option(
    "--store", "folder", type=PathOption(), help="Folder [$BRIDGEPACK_STORE, or artifacts/.bridgepack/tokens]."
)


@store.command(name="list")
@_store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(folder: Path | None, as_json: bool) -> int:
    """List what the store holds: tokenisations, their sizes and last use, and the artifacts made of them."""
    from bridgepack.data.store.upkeep import list_store
    from bridgepack.report.stores import describe_store

    listing = list_store(_named(folder))
    print_json(listing.summary()) if as_json else echo(describe_store(listing))
    return CLEAN


@store.command()
@_store_option
@click.option("--unused", is_flag=True, help="Tokens that no artifact was made of which is still there.")
@click.option("--older-than", type=Age(), help="Tokens that were not used for so long, e.g. 30d.")
@click.option("--max-size", metavar="SIZE", help="Those not used for longest, until the rest fits, e.g. 100G.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would go; remove nothing.")
def prune(
    folder: Path | None,
    unused: bool,
    older_than: float | None,
    max_size: str | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Remove tokens by age, by size, or that no artifact uses. No build may use the store meanwhile."""
    from bridgepack.data.store.upkeep import PruneRules, prune_store
    from bridgepack.data.workers.memory import parse_size
    from bridgepack.report.stores import describe_pruned

    if not (unused or older_than is not None or max_size is not None):
        raise click.UsageError("nothing says what may go; give --unused, --older-than or --max-size.")
    rules = PruneRules(
        is_unused=unused,
        older_than_s=older_than,
        max_bytes=None if max_size is None else parse_size(max_size, "--max-size"),
    )
    pruned = prune_store(_named(folder), rules, is_dry_run=dry_run)
    print_json(pruned.summary()) if as_json else echo(describe_pruned(pruned))
    return CLEAN


@store.command()
@_store_option
@click.option("--remove", is_flag=True, help="Take broken files away; the next build makes them again.")
@click.option("--workers", type=Count(), help="Most processes [the machine's cores].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: Path | None, remove: bool, workers: int | None, as_json: bool) -> int:
    """Read every byte of the store and compare it with its checksum; exit 1 when a file is broken."""
    from bridgepack.data.store.upkeep import verify_store
    from bridgepack.report.progress import TerminalProgress
    from bridgepack.report.stores import describe_verified

    with TerminalProgress() as progress:
        found = verify_store(_named(folder), removes=remove, num_workers=workers or num_cores(), progress=progress)
    print_json(found.summary()) if as_json else echo(describe_verified(found))
    return FINDINGS if found.broken else CLEAN


def _named(folder: Path | None) -> Path:
    """Return the store that is meant: as for an artifact in the folder that builds use by default."""
    from bridgepack.data.build import DEFAULT_FOLDER
    from bridgepack.data.store.store import default_store

    return folder or default_store(Path(DEFAULT_FOLDER) / "any")
