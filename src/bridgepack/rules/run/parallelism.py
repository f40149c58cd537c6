"""Rules on pipeline, expert, tensor and data parallelism over packed rows."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
