"""The version of Megatron-Bridge in this environment, which a recipe is for where it names none."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from bridgepack.errors import ConfigError
from bridgepack.host import BRIDGE, release_of


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
