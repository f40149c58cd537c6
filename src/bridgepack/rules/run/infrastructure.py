"""Rules on what happens around training: preparing on rank 0, file systems, versions of old artifacts."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
