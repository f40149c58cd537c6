"""The Megatron-Bridge that the tests run on: the installed one, or that of the folder in BRIDGEPACK_MEGATRON."""

import importlib.metadata
import os
import sys
from pathlib import Path

from bridgepack.host import HostRelease, release_of

#: Where `scripts/test --megatron FOLDER` says which packages to take instead of the installed ones.
VARIABLE = "BRIDGEPACK_MEGATRON"


def put_first() -> None:
    """Put the folder of the variable in front of what is installed, for this process and for those it starts."""
    if not (named := os.environ.get(VARIABLE)):
        return
    folder = Path(named).resolve()
    assert (folder / "megatron" / "bridge").is_dir(), f"{VARIABLE} is {named!r}; allowed: a folder with megatron/bridge"
    sys.path.insert(0, str(folder))
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *(path for path in inherited if path != str(folder))])


def host_version(distribution: str = "megatron-bridge") -> str:
    """Return the version of a distribution as imports find it: `0.6.2`."""
    return importlib.metadata.version(distribution)


def host_release() -> HostRelease:
    """Return the release of the Megatron-Bridge that is imported."""
    return release_of(host_version())
