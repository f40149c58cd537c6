"""Rules on packing inside the batch, for vision-language and direct Hugging Face data."""

from __future__ import annotations

from bridgepack.rules.run_rule import RunRule

RULES: tuple[RunRule, ...] = ()
