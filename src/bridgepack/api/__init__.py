"""The Python API: one function per command, plus conversion to and from Megatron-Bridge configs.

In: recipes, artifacts and options as values. Out: results with `to_dict` and `to_pandas`.
Read first: `making`, then `proving`.
"""

from bridgepack.api.making import (
    build,
    export,
    forward_step_for,
    load_recipe,
    pack_for,
    plan,
    preview,
    repack,
    to_bridge,
)
from bridgepack.api.proving import canary, check, diff, explain, inspect, masks, report, trace, verify

__all__ = [
    "build",
    "canary",
    "check",
    "diff",
    "explain",
    "export",
    "forward_step_for",
    "inspect",
    "load_recipe",
    "masks",
    "pack_for",
    "plan",
    "preview",
    "repack",
    "report",
    "to_bridge",
    "trace",
    "verify",
]
