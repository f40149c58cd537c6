"""Rules on what megatron-core refuses for a model under context parallelism or with widths that vary."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ERROR, Violation
from bridgepack.rules.run.kernel_facts import stated
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject

_KIND = "model.cp_comm_type"


@rule(
    "BP724",
    ERROR,
    "PSB707; megatron/bridge/training/config.py:1524-1532; megatron/core/transformer/transformer_config.py:2778",
)
def exchange_kinds_not_one_per_layer(subject: RunSubject) -> Iterator[Violation]:
    """The kinds of exchange are neither one text nor a list with one text per layer.

    Why: Crash in validate(), which counts them against num_layers.
    Bad: num_layers 16, cp_comm_type [p2p, a2a], context_parallel_size 2.
    Good: cp_comm_type p2p, or a list of 16.
    Fix: Set model.cp_comm_type to one text, or to as many as there are layers.
    Noticed: validate().
    Evidence: executed with the real 0.6.2.
    """
    if subject.context_parallel_size == 1:
        return
    kind = subject.settings.value(_KIND)
    if isinstance(kind, (list, tuple)):
        num_layers = subject.settings.integer("model.num_layers")
        if len(kind) != num_layers:
            yield Violation(where=_KIND, found=f"{len(kind)} kinds", allowed=f"one, or {num_layers}: one per layer")
    elif kind is not None and not isinstance(kind, str):
        yield Violation(where=_KIND, found=repr(kind), allowed="p2p, a2a, all_gather, a2a+p2p or a list of them")


@rule("BP725", ERROR, "PSB704, PSB911; megatron/core/transformer/transformer_config.py:2837-2852", noticed="validate()")
def sparse_attention_without_all_gather(subject: RunSubject) -> Iterator[Violation]:
    """A model with DeepSeek sparse attention uses context parallelism without the allgather exchange.

    Why: Crash in validate(): sparse attention exchanges keys and values by allgather only.
    Bad: experimental_attention_variant dsa, context_parallel_size 4, cp_comm_type not set.
    Good: experimental_attention_variant dsa, context_parallel_size 4, cp_comm_type allgather.
    Fix: Set model.cp_comm_type to allgather.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if subject.context_parallel_size == 1 or subject.of_model("experimental_attention_variant") != "dsa":
        return
    kinds = subject.cp_comm_types if subject.of_model("cp_comm_type") else ()
    if not kinds or any(kind.replace("_", "").lower() != "allgather" for kind in kinds):
        yield Violation(
            where=_KIND,
            found=", ".join(kinds) or "nothing",
            allowed="allgather with sparse attention",
            changes=change(_KIND, "allgather", "the only exchange of sparse attention"),
        )


@rule("BP726", ERROR, "PSB706, PSB907; megatron/core/transformer/transformer_config.py:1368-1382", noticed="validate()")
def linear_heads_do_not_divide(subject: RunSubject) -> Iterator[Violation]:
    """Heads of gated delta net layers do not divide by tensor times context parallelism.

    Why: Crash in validate(): each rank of both kinds gets whole heads.
    Bad: linear_num_key_heads 16, tensor parallelism 8, context parallelism 4.
    Good: linear_num_key_heads 16, tensor parallelism 4, context parallelism 4.
    Fix: Lower model.context_parallel_size or model.tensor_model_parallel_size.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if subject.of_model("experimental_attention_variant") != "gated_delta_net":
        return
    size = subject.tensor_model_parallel_size * subject.context_parallel_size
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        num_heads = subject.settings.integer(f"model.{name}", default=0)
        if num_heads % size:
            yield Violation(
                where="model.context_parallel_size",
                found=f"{name} {num_heads}, tensor times context parallelism {size}",
                allowed=f"a product that divides {num_heads}",
            )


@rule("BP728", ERROR, "PSB702; megatron/core/transformer/transformer_config.py:2875-2896", noticed="validate()")
def batch_invariance_with_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """Batch-invariant mode is on together with context parallelism.

    Why: Crash in validate(): "Batch invariant mode does not support context parallelism."
    Bad: batch_invariant_mode true, context_parallel_size 2.
    Good: batch_invariant_mode false, context_parallel_size 2.
    Fix: Set model.batch_invariant_mode to false, or context parallelism to 1.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if stated(subject, "model.batch_invariant_mode") is True and subject.context_parallel_size > 1:
        yield Violation(
            where="model.batch_invariant_mode",
            found=f"true with context parallelism {subject.context_parallel_size}",
            allowed="false with context parallelism",
            changes=change("model.batch_invariant_mode", False, "context parallelism has no such kernels"),
        )


@rule("BP816", ERROR, "PSB808, PSB114; megatron/core/transformer/transformer_config.py:2643-2649", noticed="validate()")
def varying_lengths_with_allgather_dispatcher(subject: RunSubject) -> Iterator[Violation]:
    """Varying sequence lengths are announced while tokens are dispatched by allgather.

    Why: Crash in validate(), for models without experts too: allgather is the default dispatcher.
    Bad: variable_seq_lengths true, moe_token_dispatcher_type allgather.
    Good: variable_seq_lengths true, moe_token_dispatcher_type alltoall.
    Fix: Set model.moe_token_dispatcher_type to alltoall, or model.variable_seq_lengths to false.
    Evidence: executed with the real 0.6.2.
    """
    if stated(subject, "model.variable_seq_lengths") is not True:
        return
    if subject.settings.text_or_none("model.moe_token_dispatcher_type") == "allgather":
        yield Violation(
            where="model.moe_token_dispatcher_type",
            found="allgather with variable_seq_lengths true",
            allowed="alltoall or flex",
            changes=change("model.moe_token_dispatcher_type", "alltoall", "it takes lengths that vary"),
        )
