"""Rules on numbers and switches of a model that do not fit each other, or make its outputs random or wrong."""

from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, EXECUTED, Found, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.reading import HAS_EXPERTS

_TOPK, _EXPERTS, _FREQUENCY = "model.moe_router_topk", "model.num_moe_experts", "model.moe_layer_freq"
_BALANCING, _PARALLEL = "model.moe_router_load_balancing_type", "model.parallel_output"
_HEADS, _GROUPS = "model.num_attention_heads", "model.num_query_groups"
#: Kinds of balancing that may stand in a list, each with its coefficient.
LISTED_KINDS = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
#: All that the host reads or sets; noaux_tc is the name for none in its DeepSeek-V4.
KINDS = (*LISTED_KINDS, "sinkhorn", "quantile_balancing", "noaux_tc")


@rule("BP740", ERROR, when=HAS_EXPERTS, noticed="first step")
def more_experts_a_token_than_there_are(run: Run) -> Found:
    """Each token goes to more experts than the model has.

    Why: Crash at the first step: torch.topk says "selected index k out of range".
    Bad: num_moe_experts 8, moe_router_topk 16. Good: moe_router_topk 2.
    Fix: Set {model.moe_router_topk} to at most {model.num_moe_experts}.
    Source: core/transformer/moe/moe_utils.py (topk_routing_with_score_function)
    """
    topk, experts = run.stated_integer(_TOPK), run.integer(_EXPERTS)
    if topk is not None and not 1 <= topk <= experts:
        yield wrong(_TOPK, f"{topk} with {experts} experts", f"1 to {experts}")


@rule("BP741", ERROR, when=HAS_EXPERTS, noticed="model build")
def pattern_of_expert_layers_of_another_length(run: Run) -> Found:
    """The list that says which layers have experts is not as long as the model, or holds something else than 0 and 1.

    Why: Crash when the model is built: "Invalid length of moe_layer_pattern", or a division by 0.
    Bad: num_layers 16, moe_layer_freq [0, 1]. Good: moe_layer_freq 1.
    Fix: Give {model.moe_layer_freq} one 0 or 1 a layer, or a number n for every n-th layer.
    Source: core/models/gpt/gpt_layer_specs.py:643-671
    """
    pattern, layers = run.stated_value(_FREQUENCY), run.integer_or_none("model.num_layers")
    if pattern == 0:  # every 0th layer: ZeroDivisionError
        yield wrong(_FREQUENCY, "0", "at least 1, or a list")
    if not isinstance(pattern, (list, tuple)) or layers is None:
        return
    if len(pattern) != layers:
        yield wrong(_FREQUENCY, f"a list of {len(pattern)} for {layers} layers", f"a list of {layers}")
    elif entries := sorted({str(entry) for entry in pattern if entry not in (0, 1)}):
        yield wrong(_FREQUENCY, f"a list with {', '.join(entries)}", "0 and 1")


@rule("BP742", ERROR, when=HAS_EXPERTS, evidence=EXECUTED)
def kind_of_balancing_unknown(run: Run) -> Found:
    """The router knows no such kind of load balancing, or does not read it in a list.

    Why: Silent: the router applies no balancing, as if the kind were none, and most tokens may go to a few experts.
    Bad: moe_router_load_balancing_type auxloss. Good: moe_router_load_balancing_type aux_loss.
    Fix: Set {model.moe_router_load_balancing_type} to aux_loss, seq_aux_loss, global_aux_loss, sinkhorn or none.
    Source: core/transformer/moe/router.py (routing, get_aux_loss_coeff, is_aux_loss_enabled)
    """
    kinds = run.items(_BALANCING) if run.is_stated(_BALANCING) else ()
    is_list = isinstance(run.stated_value(_BALANCING), (list, tuple))
    allowed_kinds = LISTED_KINDS if is_list else KINDS
    for kind in map(str, kinds):
        if kind not in allowed_kinds:
            yield wrong(_BALANCING, f"{kind} in a list" if is_list else kind, ", ".join(allowed_kinds))


@rule("BP743", ERROR, noticed="model build")
def query_groups_do_not_divide_heads(run: Run) -> Found:
    """The number of attention heads is not a multiple of the number of query groups.

    Why: Crash when the model is built or at the first step: each group has the same number of query heads.
    Bad: num_attention_heads 32, num_query_groups 5. Good: num_query_groups 8.
    Fix: Set {model.num_query_groups} to a divisor of {model.num_attention_heads}.
    Source: core/transformer/attention.py:331-364,1832
    """
    heads, groups = run.integer_or_none(_HEADS), run.stated_integer(_GROUPS)
    if heads is None or groups is None or run.is_on("model.multi_latent_attention"):
        return
    if groups < 1 or heads % groups:
        yield wrong(_GROUPS, f"{groups} with {heads} heads", f"a divisor of {heads}")


_FORCE_BALANCE, _FORCE_BIAS = "model.moe_router_force_load_balancing", "model.moe_router_force_biased"


@rule("BP744", ERROR, when=HAS_EXPERTS)
def tokens_go_to_random_experts(run: Run) -> Found:
    """The router sends tokens to random experts: a switch for benchmarks is on.

    Why: Silent: the logits of the router are replaced by random ones in every forward pass, so that experts train on
        tokens that are not theirs, and the router does not train.
    Bad: moe_router_force_load_balancing true, as performance recipes have it. Good: false.
    Fix: Set {model.moe_router_force_load_balancing} to false and {model.moe_router_force_biased} to null.
    Source: core/transformer/moe/router.py:856-865; core/transformer/transformer_config.py:812-816
    """
    if run.is_on(_FORCE_BALANCE):
        fix = say("Set {model.moe_router_force_load_balancing} to false.")
        yield wrong(_FORCE_BALANCE, "true, a switch for benchmarks", "false", fix=fix)
    if run.is_set(_FORCE_BIAS):
        fix = say("Set {model.moe_router_force_biased} to null.")
        yield wrong(_FORCE_BIAS, f"{run.value(_FORCE_BIAS)}, a switch for benchmarks", "null", fix=fix)


@rule("BP745", ERROR)
def loss_over_gathered_logits(run: Run) -> Found:
    """The logits are gathered on every tensor-parallel rank, and the loss takes them for a rank's part of them.

    Why: Silent: the loss is too high by the logarithm of tensor parallelism, and the gradients belong to another loss.
    Bad: tensor_model_parallel_size 2, parallel_output false. Good: parallel_output true.
    Fix: Set {model.parallel_output} to true.
    Source: core/models/gpt/gpt_model.py:280; core/tensor_parallel/cross_entropy.py; Megatron-LM pull 7452
    """
    if run.tensor_model_parallel_size > 1 and run.stated_value(_PARALLEL) is False:
        yield wrong(_PARALLEL, f"false with tensor parallelism {run.tensor_model_parallel_size}", "true")
