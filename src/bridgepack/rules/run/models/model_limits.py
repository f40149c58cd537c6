"""Rules on what megatron-core refuses for a model under context parallelism or with widths that vary."""

from __future__ import annotations

from bridgepack.rules.engine.rule import ERROR, EXECUTED, VALIDATE, Found, rule, wrong
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.run.models.hybrid_models import has_gated_delta_net
from bridgepack.rules.run.reading import splits_context

_KIND = "model.cp_comm_type"


@rule("BP724", ERROR, "PSB707; bridge/training/config.py:1524-1532", when=splits_context, noticed=VALIDATE)
def exchange_kinds_not_one_per_layer(run: Run) -> Found:
    """The kinds of exchange are neither one text nor a list with one text per layer.

    Why: Crash in validate(), which counts them against num_layers.
    Bad: num_layers 16, cp_comm_type [p2p, a2a], context_parallel_size 2. Good: cp_comm_type p2p, or a list of 16.
    Fix: Set model.cp_comm_type to one text, or to as many as there are layers. Evidence: executed with the real 0.6.2.
    """
    kind = run.value(_KIND)
    if isinstance(kind, (list, tuple)):
        num_layers = run.integer("model.num_layers")
        if len(kind) != num_layers:
            yield wrong(_KIND, f"{len(kind)} kinds", f"one, or {num_layers}: one per layer")
    elif kind is not None and not isinstance(kind, str):
        yield wrong(_KIND, repr(kind), "p2p, a2a, all_gather, a2a+p2p or a list of them")


@rule("BP725", ERROR, "PSB704, PSB911; core/transformer/transformer_config.py:2837", when=splits_context)
def sparse_attention_without_all_gather(run: Run) -> Found:
    """A model with DeepSeek sparse attention uses context parallelism without the allgather exchange.

    Why: Crash in validate(): sparse attention exchanges keys and values by allgather only.
    Bad: experimental_attention_variant dsa, CP 4, cp_comm_type not set. Good: cp_comm_type allgather.
    Fix: Set model.cp_comm_type to allgather. Noticed: validate().
    """
    if run.of_model("experimental_attention_variant") != "dsa":
        return
    kinds = run.cp_comm_types if run.of_model("cp_comm_type") else ()
    if not kinds or any(kind.replace("_", "").lower() != "allgather" for kind in kinds):
        found, why = ", ".join(kinds) or "nothing", "the only exchange of sparse attention"
        yield wrong(_KIND, found, "allgather with sparse attention", to="allgather", because=why)


@rule("BP726", ERROR, "PSB706, PSB907; core/transformer/transformer_config.py:1368", when=has_gated_delta_net)
def linear_heads_do_not_divide(run: Run) -> Found:
    """Heads of gated delta net layers do not divide by tensor times context parallelism.

    Why: Crash in validate(): each rank of both kinds gets whole heads.
    Bad: linear_num_key_heads 16, tensor parallelism 8, context parallelism 4. Good: tensor parallelism 4.
    Fix: Lower model.context_parallel_size or model.tensor_model_parallel_size. Noticed: validate().
    """
    size = run.tensor_model_parallel_size * run.context_parallel_size
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        num_heads = run.integer(f"model.{name}", default=0)
        if num_heads % size:
            found = f"{name} {num_heads}, tensor times context parallelism {size}"
            yield wrong("model.context_parallel_size", found, f"a product that divides {num_heads}")


@rule("BP728", ERROR, "PSB702; core/transformer/transformer_config.py:2875-2896", noticed=VALIDATE)
def batch_invariance_with_context_parallelism(run: Run) -> Found:
    """Batch-invariant mode is on together with context parallelism.

    Why: Crash in validate(): "Batch invariant mode does not support context parallelism."
    Bad: batch_invariant_mode true, context_parallel_size 2. Good: batch_invariant_mode false.
    Fix: Set model.batch_invariant_mode to false, or context parallelism to 1.
    """
    path, context = "model.batch_invariant_mode", run.stated("model.batch_invariant_mode") is True
    if context and splits_context(run):
        found = f"true with context parallelism {run.context_parallel_size}"
        yield wrong(path, found, "false with context parallelism", to=False)


@rule("BP816", ERROR, "PSB808, PSB114; core/transformer/transformer_config.py:2643-2649", evidence=EXECUTED)
def varying_lengths_with_allgather_dispatcher(run: Run) -> Found:
    """Varying sequence lengths are announced while tokens are dispatched by allgather.

    Why: Crash in validate(), for models without experts too: allgather is the default dispatcher.
    Bad: variable_seq_lengths true, moe_token_dispatcher_type allgather. Good: moe_token_dispatcher_type alltoall.
    Fix: Set model.moe_token_dispatcher_type to alltoall, or model.variable_seq_lengths to false. Noticed: validate().
    """
    path, announced = "model.moe_token_dispatcher_type", "model.variable_seq_lengths"
    if run.stated(announced) is True and run.text_or_none(path) == "allgather":
        why = "it takes lengths that vary"
        yield wrong(path, "allgather with variable_seq_lengths true", "alltoall or flex", to="alltoall", because=why)
