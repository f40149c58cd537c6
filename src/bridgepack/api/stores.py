"""API functions on the token store: list, prune, verify."""

import os
from pathlib import Path

from bridgepack.api.progress import shows_progress
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.data.build import DEFAULT_FOLDER
from bridgepack.data.store import upkeep
from bridgepack.data.store.store import STORE_VARIABLE, default_store
from bridgepack.data.store.upkeep import Pruned, StoreListing, Verified
from bridgepack.data.tasks import Progress
from bridgepack.data.workers.memory import parse_size
from bridgepack.errors import ConfigError, StoreError

#: Token store beside a build's output, and the maximum number of stores that a message names.
_BESIDE_OUTPUT, _SHOWN = ".bridgepack/tokens", 5


@check_arguments
def list_store(store: str | Path | None = None) -> StoreListing:
    """Return the tokenisations in a token store, and the artifacts that were built from it.

    Example: `bridgepack.list_store("artifacts/.bridgepack/tokens").tokenizations`.

    Args:
        store: its folder (default: that of builds without `output`).

    Raises:
        StoreError: the folder is not a store.
    """
    return upkeep.list_store(_folder(store))


@check_arguments
def prune_store(
    store: str | Path | None = None,
    *,
    unused: bool = False,
    older_than_s: float | None = None,
    max_size: str | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove token files by age, by size, or that no artifact uses; return what was removed.

    Example: `bridgepack.prune_store(unused=True, dry_run=True).num_bytes`.

    Args:
        store: its folder (default: that of builds without `output`).
        unused: remove tokens and kept rows that no existing artifact uses.
        older_than_s: remove tokens that were not used for so many seconds.
        max_size: remove the least recently used until the rest fits, e.g. `100G`.
        dry_run: only return what would be removed.

    Raises:
        ConfigError: nothing is selected, or the size is none.
        StoreError: the folder is not a store, or a build is using it.
    """
    if not unused and older_than_s is None and max_size is None:
        raise ConfigError("no selection given; allowed: unused, older_than_s, max_size. Give at least one.")
    max_bytes = None if max_size is None else parse_size(max_size, "--max-size")
    return upkeep.prune_store(
        _folder(store), is_unused=unused, older_than_s=older_than_s, max_bytes=max_bytes, is_dry_run=dry_run
    )


@shows_progress
@check_arguments
def verify_store(
    store: str | Path | None = None, *, remove: bool = False, num_workers: int = 1, progress: Progress | None = None
) -> Verified:
    """Compare every file of a token store with its checksum; return the broken ones.

    Example: `bridgepack.verify_store().broken`.

    Args:
        store: its folder (default: that of builds without `output`).
        remove: remove broken files, which the next build writes again.
        num_workers: maximum worker processes.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        StoreError: the folder is not a store.
    """
    return upkeep.verify_store(_folder(store), removes=remove, num_workers=num_workers, progress=progress)


def _folder(store: str | Path | None) -> Path:
    place = default_store(Path(DEFAULT_FOLDER) / "any") if store is None else local_path(store, "store")
    if store is None and not place.exists() and STORE_VARIABLE not in os.environ:
        store_folders = sorted(map(str, [*Path().glob(_BESIDE_OUTPUT), *Path().glob(f"*/{_BESIDE_OUTPUT}")]))
        where = f" Found: {', '.join(store_folders[:_SHOWN])}." if store_folders else ""
        raise StoreError(
            f"no token store in {str(place)!r}, where builds without --output keep it; with --output it is in "
            f"{_BESIDE_OUTPUT} beside the output.{where} Set --store {store_folders[0] if store_folders else 'FOLDER'}."
        )
    return place
