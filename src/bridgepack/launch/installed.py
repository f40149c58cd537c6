"""Says what to install where nemo-run is missing."""

from __future__ import annotations

from importlib.util import find_spec

from bridgepack.errors import ConfigError


def require_nemo_run() -> None:
    """Make sure that nemo-run is installed; it is not imported, which takes seconds.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("nemo_run") is None:
        raise ConfigError(
            'launching needs nemo-run, which is not installed here. Install it: pip install "bridgepack[launch]"'
        )
