"""The token store commands: `store list | prune | verify`."""

from pathlib import Path

import click

from bridgepack import api
from bridgepack.cli.options import Age, Count, PathOption, num_cores, quiet_option, shown_progress
from bridgepack.cli.output import CLEAN, FINDINGS, echo, print_json
from bridgepack.reporting.results.stores import pruned_blocks, store_blocks, verified_blocks
from bridgepack.reporting.screen import screen


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
    listing = api.list_store(folder)
    print_json(listing.to_dict()) if as_json else echo(screen(store_blocks(listing)))
    return CLEAN


@store.command()
@_store_option
@click.option("--unused", "is_unused", is_flag=True, help="Remove tokens and kept rows that no existing artifact uses.")
@click.option("--older-than", type=Age(), help="Remove tokens not used for this long, e.g. 30d.")
@click.option("--max-size", metavar="SIZE", help="Remove the least recently used until the rest fits, e.g. 100G.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
def prune(
    folder: Path | None, is_unused: bool, older_than: float | None, max_size: str | None, as_json: bool, dry_run: bool
) -> int:
    """Remove tokens by age, by size, or that no artifact uses. Do not run it while a build uses the store."""
    if not (is_unused or older_than is not None or max_size is not None):
        raise click.UsageError("no selection given; use --unused, --older-than or --max-size.")
    pruning = api.prune_store(folder, unused=is_unused, older_than_s=older_than, max_size=max_size, dry_run=dry_run)
    print_json(pruning.to_dict()) if as_json else echo(screen(pruned_blocks(pruning)))
    return CLEAN


@store.command()
@_store_option
@click.option("--remove", is_flag=True, help="Remove broken files; the next build writes them again.")
@click.option("--num-workers", type=Count(), help="Maximum worker processes (default: CPU count).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
def verify(folder: Path | None, remove: bool, num_workers: int | None, as_json: bool) -> int:
    """Compare every file of the store with its checksum.

    Exits 1 when one is broken.
    """
    with shown_progress() as progress:
        verification = api.verify_store(
            folder, remove=remove, num_workers=num_workers or num_cores(), progress=progress
        )
    print_json(verification.to_dict()) if as_json else echo(screen(verified_blocks(verification)))
    return FINDINGS if verification.broken else CLEAN
