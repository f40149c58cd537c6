"""Rules on the router of experts: groups, losses, scores, padding, and the dispatcher that it needs."""

from collections.abc import Iterator

from bridgepack.host.validated import (
    BIASED_SCORES,
    EXPERTS_WITH_OWN_INPUTS,
    OFFLOADED_IN_EXPERTS,
    UNPADDED_DISPATCHERS,
)
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.environment import CORE
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, set_to, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.validated.precision import quantisation

_EXPERTS = "model.num_moe_experts"
_DISPATCHER, _BACKEND = "model.moe_token_dispatcher_type", "model.moe_flex_dispatcher_backend"
_GROUPS, _LIMIT = "model.moe_router_num_groups", "model.moe_router_group_topk"


@fixable_rule("BP870", ERROR, "core/transformer/transformer_config.py:2344-2366", noticed=VALIDATE, evidence=EXECUTED)
def group_limited_routing_incomplete(run: Run) -> Found:
    """Routing is limited to groups of experts, but the groups are missing, too few, or do not divide the experts.

    Bad: moe_router_group_topk 2, moe_router_num_groups not set. Good: moe_router_num_groups 4 with 64 experts.
    Fix: Set {model.moe_router_num_groups} to a divisor of {model.num_moe_experts} that is at least
        {model.moe_router_group_topk}, or unset both; {model.moe_router_topk_limited_devices} is their old name.
    """
    limit, groups = run.stated_integer(_LIMIT), run.stated_integer(_GROUPS)
    if not limit:
        return
    experts, old = run.integer_or_none(_EXPERTS), "model.moe_router_topk_limited_devices"
    if run.stated_value(old):
        yield wrong(old, f"{run.value(old)} with moe_router_group_topk {limit}", "None", to=None)
    if experts is None:
        yield wrong(_LIMIT, f"{limit} without experts", "None", to=None)
    elif not groups:
        yield wrong(_GROUPS, f"not set, with moe_router_group_topk {limit}", f"a divisor of {experts}, the experts")
    elif experts % groups:
        yield wrong(_GROUPS, f"{groups} with {experts} experts", f"a divisor of {experts}")
    elif limit > groups:
        yield wrong(_LIMIT, f"{limit} with {groups} groups", f"at most {groups}")


@rule("BP871", ERROR, "core/transformer/transformer_config.py:1651-1658", noticed=VALIDATE, evidence=EXECUTED)
def balancing_losses_without_coefficients(run: Run) -> Found:
    """moe_router_load_balancing_type is a list, and moe_aux_loss_coeff is not a list of the same length.

    Bad: moe_router_load_balancing_type [aux_loss, seq_aux_loss], moe_aux_loss_coeff 0.01.
    Good: moe_aux_loss_coeff [0.01, 0.001].
    Fix: Give a coefficient for each kind of balancing, in the same order, or one kind and one coefficient.
    """
    kinds, coefficients = (
        run.stated_value("model.moe_router_load_balancing_type"),
        run.stated_value("model.moe_aux_loss_coeff"),
    )
    if isinstance(kinds, list) and not (isinstance(coefficients, list) and len(coefficients) == len(kinds)):
        actual = f"{coefficients} for {len(kinds)} kinds of balancing"
        yield wrong("model.moe_aux_loss_coeff", actual, f"a list of {len(kinds)}")


@fixable_rule("BP872", ERROR, "core/transformer/transformer_config.py:2312-2330", noticed=VALIDATE, evidence=EXECUTED)
def router_pads_for_no_quantisation(run: Run) -> Found:
    """The router pads the tokens of each expert for FP8 or FP4, but the run has neither, or a dispatcher without it.

    Bad: moe_router_padding_for_fp8 true, mixed_precision bf16_mixed. Good: moe_router_padding_for_fp8 false.
    Fix: Set {model.moe_router_padding_for_fp8} and {model.moe_router_padding_for_quantization} to false without FP8 and
        FP4; with them, set {model.moe_token_dispatcher_type} to alltoall or flex.
    """
    paths = [f"model.moe_router_padding_for_{name}" for name in ("quantization", "fp8")]
    for path in filter(run.is_on, paths):
        dispatcher = run.text_or_none(_DISPATCHER)
        if quantisation(run) is None:
            yield wrong(path, "true without FP8 or FP4", "false", to=False, because="nothing is quantised")
        elif dispatcher in UNPADDED_DISPATCHERS:
            yield wrong(
                _DISPATCHER,
                say("{dispatcher} with {path} true", dispatcher=dispatcher, path=setting(path)),
                "alltoall or flex",
                to="alltoall",
            )


@fixable_rule("BP873", ERROR, "core/transformer/transformer_config.py:1587-1639", noticed=VALIDATE, evidence=EXECUTED)
def deepep_without_flex_dispatcher(run: Run) -> Found:
    """DeepEP is on without the flex dispatcher or beside another backend, or two numbers of SMs contradict each other.

    Bad: moe_enable_deepep true, moe_token_dispatcher_type alltoall. Good: moe_token_dispatcher_type flex.
    Fix: Set {model.moe_token_dispatcher_type} to flex and {model.moe_flex_dispatcher_backend} to deepep, or
        {model.moe_enable_deepep} to false. Set {model.moe_flex_dispatcher_num_sms} alone; {model.moe_deepep_num_sms}
        and {model.moe_hybridep_num_sms} are its old names.
    """
    if run.is_on("model.moe_enable_deepep"):
        yield from _deepep(run)
    names = ("model.moe_deepep_num_sms", "model.moe_hybridep_num_sms")
    old = {path: run.value(path) for path in names if run.is_set(path)}
    if len(old) > 1 and old[names[0]] != old[names[1]] and not run.is_set("model.moe_flex_dispatcher_num_sms"):
        actual = f"{old[names[0]]} with moe_hybridep_num_sms {old[names[1]]}"
        fix = say("Set {model.moe_flex_dispatcher_num_sms} alone, and {old} to null.", old=setting(*names))
        yield wrong(names[0], actual, "moe_flex_dispatcher_num_sms", fix=fix)


def _deepep(run: Run) -> Found:
    dispatcher, pads = run.text_or_none(_DISPATCHER), "model.moe_pad_expert_input_to_capacity"
    if dispatcher != "flex":
        yield wrong(_DISPATCHER, f"{dispatcher} with moe_enable_deepep true", "flex", to="flex")
    elif run.is_on(pads):
        yield wrong(pads, "true with moe_enable_deepep true", "false", to=False)
    if run.text_or_none(_BACKEND) == "hybridep":
        yield wrong(_BACKEND, "hybridep with moe_enable_deepep true", "deepep", to="deepep")


@fixable_rule(
    "BP874",
    ERROR,
    "core/transformer/transformer_config.py:1540-1558,1641-1648",
    noticed=VALIDATE,
    evidence=EXECUTED,
)
def sizes_of_no_experts(run: Run) -> Found:
    """The size of experts is set for a model without experts, or the size of shared experts is not positive.

    Bad: moe_ffn_hidden_size 768, num_moe_experts not set. Good: moe_ffn_hidden_size not set.
    Fix: Unset {model.moe_ffn_hidden_size} for a dense model, and {model.moe_shared_expert_intermediate_size} without
        shared experts.
    """
    size, frequency = "model.moe_ffn_hidden_size", run.stated_value("model.moe_layer_freq")
    is_mixed = 0 in frequency if isinstance(frequency, list) else isinstance(frequency, int) and frequency > 1
    if run.is_set(size) and run.integer_or_none(_EXPERTS) is None and not is_mixed:
        yield wrong(size, f"{run.value(size)} without experts", "None", to=None, because="the model has no experts")
    shared_size = "model.moe_shared_expert_intermediate_size"
    number = run.stated_integer(shared_size)
    if number is not None and number <= 0:
        yield wrong(shared_size, str(number), "None, or shared experts x the size of one", to=None)


@fixable_rule(
    "BP875",
    ERROR,
    "core/transformer/transformer_config.py:2284-2294,2332-2342",
    noticed=VALIDATE,
    evidence=EXECUTED,
)
def router_scores_contradicted(run: Run) -> Found:
    """The score function of the router does not work with its bias for each expert, or with one expert per token.

    Bad: moe_router_enable_expert_bias true, moe_router_score_function softmax. Good: sigmoid.
    Fix: Set {model.moe_router_score_function} to sigmoid with expert biases. With {model.moe_router_topk} 1 and
        softmax, set {model.moe_router_pre_softmax} to true: softmax over one score has no gradient.
    """
    scores, function = run.text_or_none("model.moe_router_score_function"), "model.moe_router_score_function"
    if run.is_on("model.moe_router_enable_expert_bias") and scores not in BIASED_SCORES:
        actual, fix = f"{scores} with moe_router_enable_expert_bias true", set_to(function, "sigmoid")
        yield wrong(function, actual, " or ".join(BIASED_SCORES), fix=fix)
    is_balanced_otherwise = run.stated_value("model.moe_router_load_balancing_type") == "sinkhorn"
    pre = "model.moe_router_pre_softmax"
    is_single = run.stated_value("model.moe_router_topk") == 1 and scores == "softmax"
    if is_single and not run.is_on(pre) and not is_balanced_otherwise:
        yield wrong(pre, "false with moe_router_topk 1 and softmax", "true", to=True)


@fixable_rule("BP876", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def grouped_experts_without_what_they_need(run: Run) -> Found:
    """Expert weights are kept in one tensor, or activations are stashed, but a setting that this needs is missing.

    Bad: moe_single_grouped_weight true, moe_grouped_gemm false. Good: both false.
    Fix: Set {model.moe_single_grouped_weight}, {model.moe_single_grouped_bias} and {model.moe_paged_stash} to false, or
        change the settings that the finding names.
    Source: core/transformer/transformer_config.py:1560-1600,1907-1925
    """
    weight, bias = "model.moe_single_grouped_weight", "model.moe_single_grouped_bias"
    for path in filter(run.is_on, (weight, bias)):
        if not run.is_on("model.moe_grouped_gemm"):
            yield wrong(path, "true without moe_grouped_gemm", "false", to=False)
    if run.is_on(weight) and quantisation(run) in ("fp8", "fp4"):
        yield wrong(weight, "true with FP8 that is not mxfp8", "false", to=False)
    if run.is_on(weight) and not run.is_on("model.use_transformer_engine_op_fuser"):
        yield wrong(weight, "true without use_transformer_engine_op_fuser", "false", to=False)
    gathers = any(run.is_on(path) for path in ("model.fp4_param", "mixed_precision.fp4_param_gather"))
    if run.is_on(weight) and quantisation(run) == "nvfp4" and not gathers and run.versions.are_in({CORE: ">=0.20"}):
        yield wrong(weight, "true with FP4 whose parameters are not gathered in FP4", "false", to=False)
    if run.is_on(bias) and not run.is_on("model.add_bias_linear"):
        yield wrong(bias, "true without add_bias_linear", "false", to=False)
    stash = "model.moe_paged_stash"
    if run.is_on(stash):
        for reason in _why_no_stash(run):
            yield wrong(stash, f"true {reason}", "false", to=False)


def _why_no_stash(run: Run) -> Iterator[str]:
    if run.is_on("model.cpu_offloading"):
        yield "with cpu_offloading true"
    if not run.is_set("model.moe_expert_rank_capacity_factor"):
        yield "without moe_expert_rank_capacity_factor"
    if OFFLOADED_IN_EXPERTS & set(map(str, run.items("model.offload_modules"))):
        yield "with offload_modules inside the experts"


@fixable_rule("BP994", ERROR, "bridge/models/gemma/gemma4_provider.py:49-73,332", noticed=VALIDATE, evidence=EXECUTED)
def option_passed_by_experts_of_gemma_4(run: Run) -> Found:
    """An option is on that Gemma 4's experts ignore, because their router has its own input.

    Bad: Gemma 4 26B-A4B, recompute_modules [layernorm]. Good: recompute_modules [core_attn].
    Fix: Turn CUDA graphs and {model.moe_shared_expert_overlap} off, recompute modules other than layernorm, and offload
        modules other than mlp_norm.
    """
    if run.class_name("model") not in EXPERTS_WITH_OWN_INPUTS or not run.is_mixture_of_experts:
        return
    impl, overlap = "model.cuda_graph_impl", "model.moe_shared_expert_overlap"
    if (run.text_or_none(impl) or "none") != "none":
        yield wrong(impl, str(run.text_or_none(impl)), "none", to="none", because="its experts cannot be captured")
    if run.is_on(overlap):
        yield wrong(overlap, "true", "false", to=False)
    is_selective = run.stated_value("model.recompute_granularity") == "selective"
    if is_selective and "layernorm" in run.items("model.recompute_modules"):
        yield wrong("model.recompute_modules", "layernorm", "other modules")
    offloads = run.is_on("model.fine_grained_activation_offloading")
    if offloads and "mlp_norm" in run.items("model.offload_modules"):
        yield wrong("model.offload_modules", "mlp_norm", "other modules")
