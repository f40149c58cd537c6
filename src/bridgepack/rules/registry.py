"""All rules, in the order in which they run and are listed."""

from __future__ import annotations

from bridgepack.rules import guard, manifest, masks, metadata, npy, preparation, rows, shards, special_tokens, structure
from bridgepack.rules.rule import Rule
from bridgepack.rules.run import (
    alignment,
    attention,
    attention_kinds,
    batches,
    boundaries,
    caches,
    context_parallel,
    earlier_versions,
    environment,
    environment_target,
    exchange,
    experts,
    families,
    fp8,
    graph_settings,
    graphs,
    hybrid_models,
    in_batch,
    infrastructure,
    kinds,
    loss,
    model_limits,
    packed_artifact,
    packs,
    parallelism,
    paths,
    prediction,
    ramp_up,
    raw_data,
    reuse,
    rotary,
    schedule,
    semantics,
    sizes,
    sources,
    splits,
    supply,
    switches,
    tokens,
    waste,
    widths,
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
            *supply.RULES,
            *splits.RULES,
            *sources.RULES,
            *sizes.RULES,
            *schedule.RULES,
            *reuse.RULES,
            *ramp_up.RULES,
            *loss.RULES,
            *kinds.RULES,
            *alignment.RULES,
            *paths.RULES,
            *raw_data.RULES,
            *semantics.RULES,
            *tokens.RULES,
            *packs.RULES,
            *widths.RULES,
            *batches.RULES,
            *caches.RULES,
            *context_parallel.RULES,
            *attention.RULES,
            *boundaries.RULES,
            *exchange.RULES,
            *experts.RULES,
            *fp8.RULES,
            *graph_settings.RULES,
            *model_limits.RULES,
            *prediction.RULES,
            *rotary.RULES,
            *parallelism.RULES,
            *families.RULES,
            *hybrid_models.RULES,
            *attention_kinds.RULES,
            *graphs.RULES,
            *in_batch.RULES,
            *infrastructure.RULES,
            *packed_artifact.RULES,
            *waste.RULES,
            *environment.RULES,
            *environment_target.RULES,
            *earlier_versions.RULES,
        ),
        key=lambda rule: rule.code,
    )
)
#: Every rule on a run while it trains; no check runs them.
GUARD_RULES: tuple[Rule, ...] = guard.RULES
#: Every rule.
ALL_RULES: tuple[Rule, ...] = tuple(
    sorted((*ARTIFACT_RULES, *RUN_RULES, *SUPPRESSION_RULES, *GUARD_RULES), key=lambda rule: rule.code)
)


def find_rule(code: str) -> Rule | None:
    """Return the rule of that code, or None."""
    return next((rule for rule in ALL_RULES if rule.code == code), None)
