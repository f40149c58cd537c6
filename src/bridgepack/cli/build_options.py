"""What the options of a command that makes an artifact ask for."""

from typing import Any

from bridgepack.cli.options import num_cores
from bridgepack.cli.output import echo
from bridgepack.data.results import BuildOptions, build_options


def chosen_options(**stated: Any) -> BuildOptions:
    """Return how a build works, as the options that `cli.options.build_options` adds say.

    Raises:
        ConfigError: when one of them is impossible, or Ray is not installed.
    """
    chosen = build_options(**stated, default_workers=num_cores())
    if chosen.ray is not None and chosen.ray.address is None:
        echo("no --ray-address: Ray is started on this machine and stopped at the end", err=True)
    return chosen
