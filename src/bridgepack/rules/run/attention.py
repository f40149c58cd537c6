"""Rules on attention kernels and rotary embeddings over packed rows."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
