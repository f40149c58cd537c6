"""All rules of an artifact, in the order in which they run and are listed."""

from __future__ import annotations

from bridgepack.rules import manifest, masks, metadata, rows, shards, structure
from bridgepack.rules.rule import Rule

#: Every rule on an artifact; structure first, then rows, then the whole.
ARTIFACT_RULES: tuple[Rule, ...] = (
    *structure.RULES,
    *rows.RULES,
    *masks.RULES,
    *shards.RULES,
    *manifest.RULES,
    *metadata.RULES,
)


def find_rule(code: str) -> Rule | None:
    """Return the rule of that code, or None."""
    return next((rule for rule in ARTIFACT_RULES if rule.code == code), None)
