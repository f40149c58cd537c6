"""Rules on batch sizes, steps and epochs, which count packs."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
