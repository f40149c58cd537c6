"""The environment that a run will use, as rules see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment that a run will use.

    Attributes:
        versions: distribution, in lower case with dashes -> version.
        python: version of Python; None where it is not known.
        has_gpu: whether it was looked at on a machine with a GPU; None where it is not known.
        origin: where this comes from, in words.
    """

    versions: Mapping[str, str]
    origin: str
    python: str | None = None
    has_gpu: bool | None = None
