"""Rules on the installed versions: what cannot work together."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
