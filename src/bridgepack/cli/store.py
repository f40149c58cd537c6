"""The commands on stored tokens: `store list | prune | verify`."""

import os
from dataclasses import asdict
from pathlib import Path

import click

from bridgepack.cli.options import Age, Count, PathOption, num_cores
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.data.build import DEFAULT_FOLDER
from bridgepack.data.store.store import STORE_VARIABLE, default_store
from bridgepack.data.store.upkeep import list_store, prune_store, verify_store
from bridgepack.data.workers.memory import parse_size
from bridgepack.errors import StoreError
from bridgepack.report.progress import TerminalProgress
from bridgepack.report.stores import describe_pruned, describe_store, describe_verified

#: Where a build keeps its tokens beside its output, and how many such places are named.
_BESIDE_OUTPUT, _SHOWN = ".bridgepack/tokens", 5


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Look at the token store, empty it, verify it."""


_store_option = click.option(
    "--store", "folder", type=PathOption("FOLDER"), help="Folder [$BRIDGEPACK_STORE, or artifacts/.bridgepack/tokens]."
)


@store.command(name="list")
@_store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(folder: Path | None, as_json: bool) -> int:
    """List what the store holds.

    For each tokenisation: its size and last use, and the artifacts made of it.
    """
    listing = list_store(_named(folder))
    print_json(asdict(listing)) if as_json else echo(describe_store(listing))
    return CLEAN


@store.command()
@_store_option
@click.option("--unused", is_flag=True, help="Tokens and kept rows that no artifact still in its place is made of.")
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
    if not (unused or older_than is not None or max_size is not None):
        raise click.UsageError("nothing says what may go; give --unused, --older-than or --max-size.")
    max_bytes = None if max_size is None else parse_size(max_size, "--max-size")
    place = _named(folder)
    pruned = prune_store(place, is_unused=unused, older_than_s=older_than, max_bytes=max_bytes, is_dry_run=dry_run)
    print_json(asdict(pruned)) if as_json else echo(describe_pruned(pruned))
    return CLEAN


@store.command()
@_store_option
@click.option("--remove", is_flag=True, help="Take broken files away; the next build makes them again.")
@click.option("--workers", type=Count(), help="Most processes [the machine's cores].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: Path | None, remove: bool, workers: int | None, as_json: bool) -> int:
    """Compare every file of the store with its checksum.

    Exit 1 when one is broken.
    """
    with TerminalProgress() as progress:
        found = verify_store(_named(folder), removes=remove, num_workers=workers or num_cores(), progress=progress)
    print_json(asdict(found)) if as_json else echo(describe_verified(found))
    return FINDINGS if found.broken else CLEAN


def _named(folder: Path | None) -> Path:
    """Return the store that is meant: as for an artifact in the folder that builds use by default."""
    place = folder or default_store(Path(DEFAULT_FOLDER) / "any")
    if folder is None and not place.exists() and STORE_VARIABLE not in os.environ:
        found = sorted(map(str, [*Path().glob(_BESIDE_OUTPUT), *Path().glob(f"*/{_BESIDE_OUTPUT}")]))
        where = f" Found: {', '.join(found[:_SHOWN])}." if found else ""
        raise StoreError(
            f"there is no token store in {str(place)!r}, where builds without --output keep it; others keep it in "
            f"{_BESIDE_OUTPUT} beside their output.{where} Name it with --store {found[0] if found else 'FOLDER'}."
        )
    return place
