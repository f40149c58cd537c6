"""The token store commands: `store list | prune | verify`."""

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
from bridgepack.reporting.progress import TerminalProgress
from bridgepack.reporting.stores import describe_pruned, describe_store, describe_verified

#: Token store beside a build's output, and the maximum number of stores that a message names.
_BESIDE_OUTPUT, _SHOWN = ".bridgepack/tokens", 5


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """List, prune or verify the token store."""


_store_option = click.option(
    "--store", "folder", type=PathOption("FOLDER"), help="(default: $BRIDGEPACK_STORE or artifacts/.bridgepack/tokens)"
)


@store.command(name="list")
@_store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(folder: Path | None, as_json: bool) -> int:
    """List the tokenisations in the store.

    For each: size, last use, and the artifacts built from it.
    """
    listing = list_store(_named(folder))
    print_json(asdict(listing)) if as_json else echo(describe_store(listing))
    return CLEAN


@store.command()
@_store_option
@click.option("--unused", is_flag=True, help="Remove tokens and kept rows that no existing artifact uses.")
@click.option("--older-than", type=Age(), help="Remove tokens not used for this long, e.g. 30d.")
@click.option("--max-size", metavar="SIZE", help="Remove the least recently used until the rest fits, e.g. 100G.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
def prune(
    folder: Path | None, unused: bool, older_than: float | None, max_size: str | None, as_json: bool, dry_run: bool
) -> int:
    """Remove tokens by age, by size, or that no artifact uses. Do not run it while a build uses the store."""
    if not (unused or older_than is not None or max_size is not None):
        raise click.UsageError("no selection given; use --unused, --older-than or --max-size.")
    max_bytes = None if max_size is None else parse_size(max_size, "--max-size")
    place = _named(folder)
    pruned = prune_store(place, is_unused=unused, older_than_s=older_than, max_bytes=max_bytes, is_dry_run=dry_run)
    print_json(asdict(pruned)) if as_json else echo(describe_pruned(pruned))
    return CLEAN


@store.command()
@_store_option
@click.option("--remove", is_flag=True, help="Remove broken files; the next build writes them again.")
@click.option("--workers", type=Count(), help="Maximum worker processes (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: Path | None, remove: bool, workers: int | None, as_json: bool) -> int:
    """Compare every file of the store with its checksum.

    Exits 1 when one is broken.
    """
    with TerminalProgress() as progress:
        found = verify_store(_named(folder), removes=remove, num_workers=workers or num_cores(), progress=progress)
    print_json(asdict(found)) if as_json else echo(describe_verified(found))
    return FINDINGS if found.broken else CLEAN


def _named(folder: Path | None) -> Path:
    place = folder or default_store(Path(DEFAULT_FOLDER) / "any")
    if folder is None and not place.exists() and STORE_VARIABLE not in os.environ:
        found = sorted(map(str, [*Path().glob(_BESIDE_OUTPUT), *Path().glob(f"*/{_BESIDE_OUTPUT}")]))
        where = f" Found: {', '.join(found[:_SHOWN])}." if found else ""
        raise StoreError(
            f"no token store in {str(place)!r}, the default of builds without --output; other builds keep it in "
            f"{_BESIDE_OUTPUT} beside their output.{where} Name it with --store {found[0] if found else 'FOLDER'}."
        )
    return place
