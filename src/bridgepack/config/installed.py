"""The version of Megatron-Bridge in this environment, which a recipe is for where it names none, and its package."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from bridgepack.errors import ConfigError
from bridgepack.host import BRIDGE, release_for, release_of


@cache
def installed_version() -> str | None:
    """Return the version of the installed Megatron-Bridge without its local part; nothing is imported.

    None if there is none, or one that is older than every supported release, which no recipe can be for.
    """
    try:
        public_version = version(BRIDGE).partition("+")[0]
        release_of(public_version)
    except (PackageNotFoundError, ConfigError):
        return None
    return public_version


def installed_root() -> str:
    """Return the package that modules of the installed Megatron-Bridge are imported from, by its version."""
    return release_for(installed_version()).root


def top_packages() -> tuple[str, ...]:
    """Return the names of the folders that have the files of the installed Megatron-Bridge and of Megatron-Core."""
    return tuple(dict.fromkeys((installed_root().partition(".")[0], "megatron")))
