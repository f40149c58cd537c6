"""All rules, in the order in which they run and are listed."""

from __future__ import annotations

from bridgepack.rules import manifest, masks, metadata, npy, preparation, rows, shards, special_tokens, structure
from bridgepack.rules.rule import Rule
from bridgepack.rules.run import (
    alignment,
    attention,
    batches,
    environment,
    families,
    graphs,
    in_batch,
    infrastructure,
    parallelism,
    paths,
    semantics,
    switches,
)
from bridgepack.rules.run_rule import RunRule
from bridgepack.rules.suppression import SUPPRESSION_RULES

#: Every rule on an artifact; structure first, then rows, then the whole.
ARTIFACT_RULES: tuple[Rule, ...] = (
    *structure.RULES,
    *rows.RULES,
    *masks.RULES,
    *special_tokens.RULES,
    *shards.RULES,
    *npy.RULES,
    *manifest.RULES,
    *preparation.RULES,
    *metadata.RULES,
)


#: Every rule on a run, by code.
RUN_RULES: tuple[RunRule, ...] = tuple(
    sorted(
        (
            *switches.RULES,
            *alignment.RULES,
            *paths.RULES,
            *semantics.RULES,
            *batches.RULES,
            *attention.RULES,
            *parallelism.RULES,
            *families.RULES,
            *graphs.RULES,
            *in_batch.RULES,
            *infrastructure.RULES,
            *environment.RULES,
        ),
        key=lambda rule: rule.code,
    )
)
#: Every rule.
ALL_RULES: tuple[Rule, ...] = tuple(
    sorted((*ARTIFACT_RULES, *RUN_RULES, *SUPPRESSION_RULES), key=lambda rule: rule.code)
)


def find_rule(code: str) -> Rule | None:
    """Return the rule of that code, or None."""
    return next((rule for rule in ALL_RULES if rule.code == code), None)
