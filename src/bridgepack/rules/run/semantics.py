"""Rules on what the tokens mean: templates, masks, special tokens, over-long examples."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
