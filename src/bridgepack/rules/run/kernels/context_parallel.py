"""Rules on hybrid, dynamic, hierarchical and evaluation context parallelism."""

from bridgepack.host.roots import canonical_name_of
from bridgepack.rules.judging.environment import ENGINE
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, fixable_rule, place, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, Run
from bridgepack.rules.run.reading import truths

_EVALUATION = "dist.eval_context_parallel_size"
_HIERARCHY = "model.hierarchical_context_parallel_sizes"
#: A model class of the host, with the fields of megatron-core's configs.
_PROVIDER = canonical_name_of("models.gpt_provider.GPTModelProvider")
_DYNAMIC = ("model.dynamic_context_parallel", "model.sequence_packing_scheduler")


@fixable_rule("BP951", ERROR, "PSC301; core/pipeline_parallel/schedules.py:768, bridge/training/gpt_step.py:336")
def hybrid_context_parallel(run: Run) -> Found:
    """hybrid_context_parallel is on, but no dataset of the host supports its schedule.

    Why: Crash at the first step: the loaders give no sub-samples. With pipeline parallelism it does nothing.
    Bad: model.hybrid_context_parallel true. Good: model.hybrid_context_parallel false.
    Fix: Set {model.hybrid_context_parallel} to false. Noticed: first step.
    """
    where = "model.hybrid_context_parallel"
    if run.is_on(where):
        yield wrong(where, "true", "false", to=False, because="the host has no data for this schedule")


@rule("BP952", ERROR, evidence="read in core 0.19.2 and in the core that main of 2026-08-22 pins")
def dynamic_context_parallel(run: Run) -> Found:
    """Dynamic context parallelism is set, which the megatron-core of this release does not have.

    Why: Crash when the config is made: the host does not know the argument. If it is set as an attribute, it has no
        effect: packs are read as they are. Only megatron-core's dev branch has the schedulers.
    Bad: dynamic_context_parallel true with megatron-core 0.19. Good: no dynamic_context_parallel.
    Fix: Remove the setting. Noticed: construction of the config. Source: PSC302; core/model_parallel_config.py:100
    """
    run.value("model")
    types = run.release.facts.types_of(_PROVIDER)
    for path in _DYNAMIC:
        if run.stated_value(path) and path.partition(".")[2] not in types:
            yield wrong(path, str(run.value(path)), f"not set with Megatron-Bridge {run.release.name}")


@rule("BP954", ERROR, "PSC304; bridge/training/initialize.py:412", noticed="setup")
def hierarchical_context_parallel_on_decentralized_groups(run: Run) -> Found:
    """Hierarchical context parallelism is on with decentralized process groups.

    Why: Crash at setup: the host raises NotImplementedError.
    Bad: hierarchical_context_parallel_sizes [2, 2], use_decentralized_pg true. Good: use_decentralized_pg false.
    Fix: Set {dist.use_decentralized_pg} to false, or use {model.cp_comm_type} p2p or a2a without hierarchical sizes.
    """
    sizes = run.items(_HIERARCHY)
    if sizes and run.flag("dist.use_decentralized_pg"):
        yield wrong(_HIERARCHY, f"{list(sizes)} with use_decentralized_pg", "not set")


@rule("BP953", WARNING, "PSC303; bridge/training/config.py:164, training/state.py:143")
def evaluation_context_parallel_without_groups(run: Run) -> Found:
    """eval_context_parallel_size differs from training's, without decentralized process groups.

    Why: Silent: the host does not create groups for evaluation. It counts batches for eval_context_parallel_size, but
        evaluates with the context parallelism of training.
    Bad: context_parallel_size 2, eval_context_parallel_size 4, no decentralized groups. Good: eval size null.
    Fix: Remove {dist.eval_context_parallel_size}, or set {dist.use_decentralized_pg} and create the groups of
        evaluation as in the host's example on decentralized groups.
    """
    context = run.eval_context_parallel_size
    if context is None or context < 1 or context == run.context_parallel_size or not run.evaluates:
        return
    if not run.flag("dist.use_decentralized_pg"):
        yield wrong(_EVALUATION, f"{context} without use_decentralized_pg", "use_decentralized_pg true")


@rule("BP955", ERROR, "PSC304; core/extensions/transformer_engine.py", versions={ENGINE: "<1.12"}, noticed="setup")
def engine_lacks_hierarchical_context_parallel(run: Run) -> Found:
    """Hierarchical context parallelism is on, but TransformerEngine is older than 1.12.

    Why: Crash at setup: the attention of older versions supports one group of context-parallel ranks only.
    Bad: hierarchical_context_parallel_sizes [2, 2], TransformerEngine 1.11. Good: no hierarchical sizes.
    Fix: Use a newer TransformerEngine, or {model.cp_comm_type} p2p or a2a without hierarchical sizes.
    Evidence: read in megatron-core.
    """
    sizes = run.items(_HIERARCHY)
    if sizes:
        yield wrong(_HIERARCHY, f"{list(sizes)} with {run.versions[ENGINE]}", "TransformerEngine 1.12")


@fixable_rule("BP956", WARNING, "PSC301; core/model_parallel_config.py:111")
def max_seqlen_per_rank_without_effect(run: Run) -> Found:
    """max_seqlen_per_dp_cp_rank is set, but only the schedule of hybrid context parallelism reads it.

    Why: Silent: no rank gets shorter sequences; packed_sequence_size decides the memory.
    Bad: model.max_seqlen_per_dp_cp_rank 4096. Good: model.max_seqlen_per_dp_cp_rank null.
    Fix: Remove it; to save memory, lower {dataset.offline_packing_specs.packed_sequence_size} or raise
        {model.context_parallel_size}.
    """
    where = "model.max_seqlen_per_dp_cp_rank"
    value = run.integer_or_none(where)
    if value is not None:
        yield wrong(where, str(value), "null", to=None, because="the host does not read it")


@rule("BP957", WARNING, "PSB101, PSB014; Megatron-LM #1764", when=PACKS_OFFLINE)
def rank_without_trained_token(run: Run) -> Found:
    """A pack has fewer trained tokens than there are context-parallel ranks, so a rank has none.

    Why: Silent: that rank trains nothing in this pack; without calculate_per_token_loss its loss is 0 / 0, NaN. A pack
        with more trained tokens may still leave a rank without one; the rule reports only certain cases.
    Bad: context_parallel_size 4, a pack with 3 trained tokens. Good: a pack with 400 trained tokens.
    Fix: Inspect the pack for long prompts with tiny answers, or a mask that trains too little. Keep
        {model.calculate_per_token_loss} on. Noticed: never with per-token loss; NaN in the loss without.
    Evidence: Megatron-LM #1764; read in the source.
    """
    largest = max(run.context_parallel_sizes)
    if largest == 1:
        return
    for truth in truths(run):
        if truth.min_effective_tokens_per_row < largest:
            allowed_values = f"at least {largest}, one for each context-parallel rank"
            yield wrong(
                place(truth.split), f"a pack with {truth.min_effective_tokens_per_row} trained tokens", allowed_values
            )
