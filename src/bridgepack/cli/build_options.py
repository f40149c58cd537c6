"""Reads the options of the commands that write artifacts."""

from typing import Any

from bridgepack.cli.options import num_cores
from bridgepack.cli.output import echo
from bridgepack.data.results import BuildOptions, build_options


def chosen_options(**stated: Any) -> BuildOptions:
    """Return the build options from the values of the options that `cli.options.build_options` adds.

    Raises:
        ConfigError: an option has an impossible value, or Ray is not installed.
    """
    chosen = build_options(**stated, default_workers=num_cores())
    if chosen.ray is not None and chosen.ray.address is None:
        echo("no --ray-address: starting Ray on this machine; it is stopped at the end", err=True)
    return chosen
