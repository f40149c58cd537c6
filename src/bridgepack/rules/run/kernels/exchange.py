"""Rules on how context-parallel ranks exchange keys and values, and on settings that exclude it."""

import math
from typing import Any

from packaging.version import Version

from bridgepack.records.messages import say
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import ENGINE, version_of
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, change, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, Run
from bridgepack.rules.run.kernels.heads import has_large_heads
from bridgepack.rules.run.models.families import has_gated_delta_net
from bridgepack.rules.run.reading import replaces_attention, splits_context, uses_engine_attention

_KIND = "model.cp_comm_type"
_SIZES = "model.hierarchical_context_parallel_sizes"
#: Windows that let a token attend to everything before it.
_OPEN_WINDOWS = ([-1, 0], [-1, -1])
_CUDNN_WITH_SINKS = Version("9.18")
_ONE_RANK = "Set context_parallel_size to 1; with heads above 256, no cp_comm_type helps."


def _has_sliding_window(run: Run) -> bool:
    """Return whether a layer attends to the latest tokens only; Step 3.5 and 3.7 say so for each layer.

    Source: megatron/bridge/models/stepfun/step35_provider.py:110-122.
    """
    kinds = run.stated_value("model.layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        return True
    window = run.model_setting("window_size")
    return window is not None and (list(window) if isinstance(window, (list, tuple)) else window) not in _OPEN_WINDOWS


def _has_softmax_offset(run: Run) -> bool:
    return run.model_setting("softmax_type") not in (None, "vanilla")


def _back_to_ring(run: Run) -> Any:
    """Return the change to the ring exchange; empty if the model may have features that the ring does not support."""
    try:
        is_taken = not (_has_sliding_window(run) or _has_softmax_offset(run))
    except CannotJudgeError:
        is_taken = False
    return change(_KIND, "p2p", "the ring exchange supports packs") if is_taken else ()


@fixable_rule("BP704", ERROR, when=(IS_PACKED, splits_context, uses_engine_attention), versions={ENGINE: "<2.18"})
def all_gather_exchange_of_packs(run: Run) -> Found:
    """cp_comm_type is all_gather with packs, which this version of TransformerEngine does not support.

    Why: Crash at the first step: "No support for cp_comm_type='all_gather' and qkv_format='thd'", or no backend.
    Bad: cp_comm_type all_gather, CP 2, packing on, TransformerEngine 2.17.
    Good: cp_comm_type p2p, or TransformerEngine 2.18.
    Fix: Set {model.cp_comm_type} to p2p. Noticed: first step. Evidence: read in TransformerEngine 2.17.1; 2.18 has it.
    Source: PSB704; TE/dot_product_attention/context_parallel.py:3064, utils.py:1166
    """
    if "all_gather" in run.cp_comm_types:
        actual = f"all_gather with packs and TransformerEngine {run.versions[ENGINE]}"
        yield wrong(_KIND, actual, "p2p or a2a", changes=_back_to_ring(run))


@fixable_rule("BP705", ERROR, when=(IS_PACKED, splits_context, uses_engine_attention), versions={ENGINE: "<2.19"})
def hierarchical_exchange_of_packs(run: Run) -> Found:
    """Context parallelism is hierarchical (a2a+p2p) with packs.

    Why: Crash at the first step: "thd format is not supported with hierarchical CP implementation yet!"
    Bad: cp_comm_type a2a+p2p, hierarchical_context_parallel_sizes [2, 2], packing on.
    Good: cp_comm_type p2p; or TransformerEngine 2.19.
    Fix: Set {model.cp_comm_type} to p2p, or to a2a if the heads divide, and remove the hierarchical sizes.
    Noticed: first step. Evidence: read in TransformerEngine 2.17.1 and 2.18; its pull request 3290 removes it for 2.19.
    Source: PSB705; TE/dot_product_attention/context_parallel.py:4730-4732
    """
    if any("a2a+p2p" in kind for kind in run.cp_comm_types):
        ring, sizes = _back_to_ring(run), change(_SIZES, None, "only a2a+p2p uses sizes")
        yield wrong(_KIND, "a2a+p2p with packs", "p2p or a2a", changes=ring and ring + sizes)


@fixable_rule("BP706", ERROR, when=splits_context, noticed="first step", evidence="read in TransformerEngine 2.17.1")
def heads_do_not_divide_for_all_to_all(run: Run) -> Found:
    """All-to-all context parallelism gives each rank whole heads, but the heads do not divide by its size.

    Why: Crash at the first step: "cp_comm_type='a2a' requires num_heads % cp_size == 0 for Q, K, V."
    Bad: 32 heads, 8 query groups, TP 4, CP 4: 2 groups for 4 ranks. Good: CP 2, or cp_comm_type p2p.
    Fix: Set {model.cp_comm_type} to p2p, or lower context or tensor parallelism.
    Source: PSB706; TE/dot_product_attention/context_parallel.py:3952
    """
    if "a2a" not in run.cp_comm_types or replaces_attention(run):
        return
    size, tensor = run.context_parallel_size, run.tensor_model_parallel_size
    heads = run.integer("model.num_attention_heads")
    is_latent = run.stated_value("model.multi_latent_attention")
    groups = heads if is_latent else run.integer("model.num_query_groups", default=heads)
    per_rank = (heads // tensor, max(groups // tensor, 1))
    if any(count % size for count in per_rank):
        actual = f"a2a with {per_rank[0]} heads and {per_rank[1]} key-value heads per tensor-parallel rank"
        allowed_values = f"multiples of context parallelism {size} for a2a, or p2p"
        yield wrong(_KIND, actual, allowed_values, changes=_back_to_ring(run) if run.cp_comm_types == ("a2a",) else ())


@fixable_rule("BP707", ERROR, "PSB707; bridge/training/config.py:1541-1561", evidence="read in megatron-bridge 0.6.2")
def hierarchical_sizes_do_not_fit(run: Run) -> Found:
    """hierarchical_context_parallel_sizes is missing, or its product is not context_parallel_size.

    Why: Crash in validate(), which refuses it. Without sizes each rank would attend only to its own chunk.
    Bad: cp_comm_type a2a+p2p without sizes; or sizes [4, 2] at CP 4. Good: sizes [2, 2] at CP 4.
    Fix: Set sizes whose product is {model.context_parallel_size}, or remove them and use p2p. Noticed: validate().
    """
    sizes, kinds = run.stated_value(_SIZES), run.cp_comm_types if run.is_stated(_KIND) else ()
    is_used = any("a2a+p2p" in kind for kind in kinds)
    if sizes is None:
        if is_used:
            yield wrong(_SIZES, "not set, with a2a+p2p", "sizes of the two levels")
        return
    int_sizes = [size for size in run.items(_SIZES) if type(size) is int]
    if math.prod(int_sizes) != run.context_parallel_size:
        allowed_values = say("a product of {size}, {model.context_parallel_size}", size=run.context_parallel_size)
        changes = () if is_used else change(_SIZES, None, "nothing uses them")
        yield wrong(_SIZES, f"{int_sizes}, product {math.prod(int_sizes)}", allowed_values, changes=changes)


@rule("BP708", ERROR, when=(splits_context, _has_sliding_window, uses_engine_attention), noticed="first step")
def sliding_window_over_the_ring(run: Run) -> Found:
    """A model with sliding-window attention uses context parallelism with the ring exchange (p2p).

    Why: Crash at the first step: "Context parallelism does not support sliding window attention with
        cp_comm_type='p2p'!"
    Bad: window_size [127, 0], CP 2, cp_comm_type not set, which is p2p. Good: cp_comm_type a2a.
    Fix: Set {model.cp_comm_type} to a2a if heads and query groups divide by CP, else {model.context_parallel_size} to
        1. With heads above 256 only {model.context_parallel_size} 1 works, as BP730 says.
    Evidence: read in TransformerEngine 2.17.1. Source: PSB708; TE/dot_product_attention/context_parallel.py:4763-4769
    """
    if set(run.cp_comm_types) <= {"p2p", "a2a+p2p"}:
        window = run.model_setting("window_size")
        actual = f"{', '.join(run.cp_comm_types)} with window_size {window or 'in some of layer_types'}"
        if has_large_heads(run):
            yield wrong(
                _KIND, actual, "context parallelism 1: no kernel takes the model's heads with more", fix=_ONE_RANK
            )
            return
        yield wrong(_KIND, actual, "a2a with sliding windows, or context parallelism 1")


@rule("BP709", ERROR, when=(splits_context, _has_softmax_offset, uses_engine_attention), noticed="first step")
def softmax_offset_over_the_ring(run: Run) -> Found:
    """A model with attention sinks uses context parallelism in a way that no kernel supports.

    Why: Crash at the first step: sinks need cp_comm_type a2a, and over packs cuDNN 9.18 or newer.
    Bad: softmax_type learnable (GPT-OSS), CP 2, cp_comm_type not set. Good: cp_comm_type a2a, cuDNN 9.18.
    Fix: Set {model.cp_comm_type} to a2a and install cuDNN 9.18 or newer, or use context parallelism 1.
    Evidence: read in TransformerEngine 2.17.1. Source: PSB709; TE/dot_product_attention/context_parallel.py:4774-4781
    """
    kind = run.model_setting("softmax_type")
    if set(run.cp_comm_types) != {"a2a"}:
        actual = f"{', '.join(run.cp_comm_types)} with softmax_type {kind}"
        yield wrong(_KIND, actual, "a2a with attention sinks, or context parallelism 1")
    versions = run.environment.versions if run.environment is not None else {}
    cudnn = next((version_of(text) for name, text in versions.items() if name.startswith("nvidia-cudnn-cu")), None)
    if run.is_packed and cudnn is not None and cudnn < _CUDNN_WITH_SINKS:
        actual = f"{kind} over packs with cuDNN {cudnn}"
        yield wrong("model.softmax_type", actual, f"cuDNN {_CUDNN_WITH_SINKS} or newer")


@rule("BP727", ERROR, "bridge/training/config.py, _validate_cp_comm_type", noticed=VALIDATE, evidence=EXECUTED)
def exchange_of_wrong_kind(run: Run) -> Found:
    """cp_comm_type is neither a name nor a list of names.

    Why: Crash at start: validate() searches it for a name. Bad: cp_comm_type 3. Good: cp_comm_type p2p, or null.
    Fix: Set {model.cp_comm_type} to p2p, or to a list with a name for each layer.
    """
    value = run.stated_value(_KIND)
    names = value if isinstance(value, (list, tuple)) else [value]
    if value is not None and not all(isinstance(name, str) for name in names):
        yield wrong(_KIND, repr(value), "p2p, a2a, a2a+p2p, all_gather, or a list of these")


@rule("BP724", ERROR, when=splits_context, noticed=VALIDATE, evidence="executed with the real 0.6.2")
def exchange_kinds_not_one_per_layer(run: Run) -> Found:
    """cp_comm_type is neither one name nor a list with one name per layer.

    Why: Crash in validate(), which compares the number of names with num_layers.
    Bad: num_layers 16, cp_comm_type [p2p, a2a], context_parallel_size 2. Good: cp_comm_type p2p, or a list of 16.
    Fix: Set {model.cp_comm_type} to one name, or to a list of {model.num_layers} names.
    Source: PSB707; bridge/training/config.py:1524-1532; core/transformer/transformer_config.py:2778
    """
    kind = run.value(_KIND)
    if isinstance(kind, (list, tuple)):
        num_layers = run.integer("model.num_layers")
        if len(kind) != num_layers:
            yield wrong(_KIND, f"{len(kind)} kinds", f"one, or {num_layers}: one per layer")


@fixable_rule("BP725", ERROR, when=splits_context, noticed="validate()", evidence="read in megatron-core 0.19.2")
def sparse_attention_without_all_gather(run: Run) -> Found:
    """A model with DeepSeek sparse attention uses context parallelism, but not the allgather exchange.

    Why: Crash in validate(): sparse attention exchanges keys and values by allgather only.
    Bad: experimental_attention_variant dsa, CP 4, cp_comm_type not set. Good: cp_comm_type allgather.
    Fix: Set {model.cp_comm_type} to allgather. Source: PSB704, PSB911; core/transformer/transformer_config.py:2837-2852
    """
    if run.model_setting("experimental_attention_variant") != "dsa":
        return
    kinds = run.cp_comm_types if run.model_setting("cp_comm_type") else ()
    if not kinds or any(kind.replace("_", "").lower() != "allgather" for kind in kinds):
        actual, why = ", ".join(kinds) or "not set", "sparse attention supports no other exchange"
        yield wrong(_KIND, actual, "allgather with sparse attention", to="allgather", because=why)


@rule("BP726", ERROR, when=has_gated_delta_net, noticed=VALIDATE, evidence="read in megatron-core 0.19.2")
def linear_heads_do_not_divide(run: Run) -> Found:
    """Heads of gated delta net layers are not a multiple of tensor x context parallelism.

    Why: Crash in validate(): each tensor- and context-parallel rank gets whole heads.
    Bad: linear_num_key_heads 16, tensor parallelism 8, context parallelism 4. Good: tensor parallelism 4.
    Fix: Lower {model.context_parallel_size} or {model.tensor_model_parallel_size}.
    Source: PSB706, PSB907; core/transformer/transformer_config.py:1368-1382
    """
    size = run.tensor_model_parallel_size * run.context_parallel_size
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        num_heads = run.integer(f"model.{name}", default=0)
        if num_heads % size:
            actual = f"{name} {num_heads}, tensor x context parallelism {size}"
            where = "model.context_parallel_size" if splits_context(run) else "model.tensor_model_parallel_size"
            yield wrong(where, actual, f"a product that divides {num_heads}")


@fixable_rule("BP728", ERROR, "PSB702; core/transformer/transformer_config.py:2875-2896", noticed=VALIDATE)
def batch_invariance_with_context_parallelism(run: Run) -> Found:
    """Batch-invariant mode is on with context parallelism.

    Why: Crash in validate(): "Batch invariant mode does not support context parallelism."
    Bad: batch_invariant_mode true, context_parallel_size 2. Good: batch_invariant_mode false.
    Fix: Set {model.batch_invariant_mode} to false, or context parallelism to 1. Evidence: read in megatron-core 0.19.2.
    """
    path = "model.batch_invariant_mode"
    if run.stated_value(path) is True and splits_context(run):
        actual = f"true with context parallelism {run.context_parallel_size}"
        yield wrong(path, actual, "false with context parallelism", to=False)


@fixable_rule("BP816", ERROR, "PSB808, PSB114; core/transformer/transformer_config.py:2643-2649", evidence=EXECUTED)
def varying_lengths_with_allgather_dispatcher(run: Run) -> Found:
    """variable_seq_lengths is true with the allgather dispatcher.

    Why: Crash in validate(), even for models without experts: allgather is the default dispatcher.
    Bad: variable_seq_lengths true, moe_token_dispatcher_type allgather. Good: moe_token_dispatcher_type alltoall.
    Fix: Set {model.moe_token_dispatcher_type} to alltoall, or {model.variable_seq_lengths} to false. Noticed:
        validate().
    """
    path, variable_lengths = "model.moe_token_dispatcher_type", "model.variable_seq_lengths"
    if run.stated_value(variable_lengths) is True and run.text_or_none(path) == "allgather":
        why = "it supports varying lengths"
        yield wrong(path, "allgather with variable_seq_lengths true", "alltoall or flex", to="alltoall", because=why)
