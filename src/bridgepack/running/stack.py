"""What a job runs on: versions of everything that can change its outcome."""

from __future__ import annotations

import platform

from bridgepack import __version__
from bridgepack.bridge.environment import environment_here

#: Distributions that can change what a run computes, or how it is started.
_STACK = (
    "megatron-bridge",
    "megatron-core",
    "transformer-engine",
    "transformer-engine-cu12",
    "transformer-engine-cu13",
    "torch",
    "flash-attn",
    "nvidia-resiliency-ext",
    "nemo-run",
    "transformers",
    "tokenizers",
    "pyarrow",
)


def stack_versions() -> dict[str, str]:
    """Return distribution -> version of what is installed here, with Python's and bridgepack's own."""
    installed = environment_here().versions
    found = {name: installed[name] for name in _STACK if name in installed}
    return {"bridgepack": __version__, "python": platform.python_version(), **found}
