"""Rules on CUDA graphs and FP8 over packed rows."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
