"""Rules on multiples: of sequences, of packs and of rows, under context and sequence parallelism."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
