"""Rules on splitting experts over ranks, and on overlapping their communication."""

from collections.abc import Iterator

from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, set_to, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.reading import HAS_EXPERTS, acting, graph_capture

_EXPERTS = "model.num_moe_experts"
_EXPERT_SIZE = "model.expert_model_parallel_size"
_EXPERT_TENSOR = "model.expert_tensor_parallel_size"
_DISPATCHER = "model.moe_token_dispatcher_type"
_BACKEND = "model.moe_flex_dispatcher_backend"


def expert_tensor_parallel_size(run: Run) -> int:
    """Return the number of ranks that each expert is split over.

    Source: megatron/bridge/models/transformer_config.py:80, core/model_parallel_config.py, __post_init__.
    """
    default = 1 if run.expert_model_parallel_size > 1 else run.tensor_model_parallel_size
    return run.stated_integer(_EXPERT_TENSOR) or default


@fixable_rule("BP825", ERROR, "core/transformer/transformer_config.py:1468,1532", noticed=VALIDATE, evidence=EXECUTED)
def expert_parallelism_without_experts(run: Run) -> Found:
    """Expert parallelism is on for a model without experts.

    Bad: a dense model, expert_model_parallel_size 2. Good: expert_model_parallel_size 1.
    Fix: Set {model.expert_model_parallel_size} to 1 for a dense model; the GPUs then become data-parallel ranks.
    """
    size, experts = run.expert_model_parallel_size, run.integer_or_none(_EXPERTS)
    if experts is None and size > 1:
        yield wrong(_EXPERT_SIZE, f"{size} without experts", "1", to=1, because="the model has no experts")
    elif experts is not None and experts < 1:
        yield wrong(
            _EXPERTS, str(experts), "None for a dense model, or at least 1", fix=set_to(_EXPERTS, "null or more than 0")
        )


@rule("BP826", ERROR, "core/transformer/moe/moe_layer.py:185", when=HAS_EXPERTS, noticed="model build")
def experts_not_divided(run: Run) -> Found:
    """num_moe_experts is not a multiple of expert_model_parallel_size.

    Why: Crash when the model is built: a bare assertion that names no setting.
    Bad: num_moe_experts 128, expert_model_parallel_size 6. Good: expert_model_parallel_size 8.
    Fix: Set {model.expert_model_parallel_size} to a number that divides {model.num_moe_experts}.
    """
    size, experts = run.expert_model_parallel_size, run.integer(_EXPERTS)
    if experts % size:
        yield wrong(_EXPERT_SIZE, f"{size} with {experts} experts", f"a divisor of {experts}")


@fixable_rule("BP827", ERROR, "core/transformer/transformer_config.py:2279-2282", noticed=VALIDATE, evidence=EXECUTED)
def biased_experts_split(run: Run) -> Found:
    """Experts with biases are split over tensor-parallel ranks.

    Bad: gpt_oss_20b, tensor_model_parallel_size 2, expert_tensor_parallel_size not set. Good: 1.
    Fix: Set {model.expert_tensor_parallel_size} to 1; its default is tensor parallelism if expert parallelism is 1.
    """
    size = expert_tensor_parallel_size(run)
    if run.integer_or_none(_EXPERTS) is not None and run.flag("model.add_bias_linear") and size != 1:
        actual = f"{size} with add_bias_linear true"
        yield wrong(_EXPERT_TENSOR, actual, "1", to=1, because="experts with biases cannot be split over ranks")


@rule("BP828", ERROR, "core/parallel_state.py:874-884", noticed="setup")
def gpus_not_a_multiple_of_expert_parallelism(run: Run) -> Found:
    """The number of GPUs is not a multiple of expert x expert tensor x pipeline parallelism.

    Why: Crash at setup, when process groups are made, even for a model without experts.
    Bad: 8 GPUs, expert_model_parallel_size 4, pipeline_model_parallel_size 4. Good: 16 GPUs.
    Fix: Make the number of GPUs a multiple of expert x expert tensor x pipeline parallelism; leave
        {model.expert_tensor_parallel_size} unset for a model without experts.
    """
    run.require_plain_gpus()
    if not HAS_EXPERTS(run) and not run.is_set(_EXPERT_TENSOR):
        return
    sizes = (run.expert_model_parallel_size, expert_tensor_parallel_size(run), run.pipeline_model_parallel_size)
    expert, tensor, pipeline = sizes
    if run.world_size % (expert * tensor * pipeline):
        actual = (
            f"{expert} x expert tensor parallelism {tensor} x pipeline parallelism {pipeline} on {run.world_size} GPUs"
        )
        path = _EXPERT_SIZE if HAS_EXPERTS(run) else _EXPERT_TENSOR
        yield wrong(path, actual, "sizes whose product divides the GPUs")


@rule("BP829", ERROR, "core/transformer/moe/moe_layer.py:629-633", when=HAS_EXPERTS, noticed="first step")
def experts_without_sequence_parallelism(run: Run) -> Found:
    """A model with experts trains with tensor parallelism but without sequence parallelism.

    Why: Crash at the first step: every MoE layer refuses it.
    Bad: experts, tensor_model_parallel_size 2, sequence_parallel false. Good: sequence_parallel true.
    Fix: Set {model.sequence_parallel} to true, or {model.tensor_model_parallel_size} to 1 and use expert parallelism.
    """
    if run.tensor_model_parallel_size > 1 and not run.flag("model.sequence_parallel"):
        actual = f"false with experts and tensor parallelism {run.tensor_model_parallel_size}"
        yield wrong("model.sequence_parallel", actual, "true")


_OVERLAP, _DELAYED = "overlap_moe_expert_parallel_comm", "delay_wgrad_compute"


def _acts(run: Run, name: str) -> bool:
    return run.stated_value(acting(run, name)) is True


@rule("BP830", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def expert_overlap_without_what_it_needs(run: Run) -> Found:
    """The overlap of expert communication with compute is on, but a setting that it needs is missing.

    Bad: overlap_moe_expert_parallel_comm true, expert_model_parallel_size 1. Good: no overlap.
    Fix: Set {model.overlap_moe_expert_parallel_comm & comm_overlap.overlap_moe_expert_parallel_comm} to false.
    Source: core/transformer/transformer_config.py:2669-2747; bridge/training/comm_overlap.py, the same checks earlier
    """
    if _acts(run, _OVERLAP):
        for actual, allowed_values in _lacking(run):
            yield wrong(acting(run, _OVERLAP), f"true with {actual}", allowed_values)


def _lacking(run: Run) -> Iterator[tuple[str, str]]:
    is_early = run.stated_value("comm_overlap") is not None
    dispatcher, modules = run.text_or_none(_DISPATCHER), run.items("model.recompute_modules")
    if run.expert_model_parallel_size == 1 or (is_early and (run.integer_or_none(_EXPERTS) or 0) < 2):
        yield "one rank or one expert", "expert_model_parallel_size of at least 2 and several experts"
    is_laid_out = run.is_set("model.pipeline_model_parallel_layout") and not is_early
    virtual = run.stated_integer("model.virtual_pipeline_model_parallel_size")
    if run.pipeline_model_parallel_size > 1 and virtual is None and not is_laid_out:
        yield "no virtual pipeline stages", "virtual_pipeline_model_parallel_size set"
    if dispatcher not in ("alltoall", "flex"):
        yield f"moe_token_dispatcher_type {dispatcher}", "alltoall or flex"
    granularity = run.stated_value("model.recompute_granularity")
    is_recomputed = run.is_set("model.recompute_method") or run.is_set("model.recompute_num_layers")
    if granularity == "full" or is_recomputed or "moe" in modules:
        yield "whole layers or experts recomputed", "selective recomputation of other modules"
    if run.is_on("model.moe_shared_expert_overlap"):
        yield "moe_shared_expert_overlap true", "false"
    if run.num_mtp_layers > 1:
        yield f"mtp_num_layers {run.num_mtp_layers}", "at most 1"
    capture = graph_capture(run)
    if capture.impl == "transformer_engine" and {"moe", "mlp"} & set(capture.modules):
        yield "CUDA graphs of moe or mlp", "graphs of other modules"


@fixable_rule("BP831", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def part_of_expert_overlap_without_it(run: Run) -> Found:
    """An option that needs the overlap of expert communication is on without it, or one that excludes it is on with it.

    Bad: delay_wgrad_compute true, overlap_moe_expert_parallel_comm false. Good: both false.
    Fix: Set {model.delay_wgrad_compute} and {model.ep_overlap_early_attn_memory_release} to false without the overlap,
        and {model.overlap_dispatch_backward_with_experts_wgrad} with it.
    Source: core/transformer/transformer_config.py:2749-2776; bridge/training/comm_overlap.py
    """
    overlaps, delay_path = _acts(run, _OVERLAP), acting(run, _DELAYED)
    for path in (delay_path, "model.ep_overlap_early_attn_memory_release"):
        if run.is_on(path) and not overlaps:
            actual, why = f"true without {_OVERLAP}", "it works only with that overlap"
            yield wrong(path, actual, "false", to=False, because=why, fix=set_to(path, "false"))
    path, rivals = "model.overlap_dispatch_backward_with_experts_wgrad", (_OVERLAP, _DELAYED)
    with_it = [name for name in rivals if _acts(run, name)]
    if run.is_on(path) and with_it:
        actual, fix = f"true with {with_it[0]} true", set_to(path, "false")
        yield wrong(path, actual, "false", to=False, because="they exclude each other", fix=fix)


#: Load balancing types that support a capacity, and backends that support a capacity per rank.
_BALANCED = frozenset({"aux_loss", "seq_aux_loss", "global_aux_loss", "none"})
_WITH_RANK_CAPACITY = ("hybridep", "ncclep")


@fixable_rule("BP832", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def expert_capacity_without_what_it_needs(run: Run) -> Found:
    """The expert capacity setting is not supported by the router or the dispatcher.

    Bad: moe_pad_expert_input_to_capacity true, moe_expert_capacity_factor not set. Good: factor 1.0.
    Fix: Set {model.moe_expert_capacity_factor} with {model.moe_pad_expert_input_to_capacity}, balance by aux_loss,
        seq_aux_loss, global_aux_loss or none, and set {model.moe_expert_rank_capacity_factor} for hybridep or ncclep
        only.
    Source: core/transformer/transformer_config.py:1600-1606,1660-1707
    """
    factor, pads = run.number_or_none("model.moe_expert_capacity_factor"), "model.moe_pad_expert_input_to_capacity"
    balancing, backend = "model.moe_router_load_balancing_type", run.text_or_none(_BACKEND)
    odd = [kind for kind in map(str, run.items(balancing)) if kind not in _BALANCED]
    if factor is not None and odd:
        yield wrong(balancing, f"{odd[0]} with moe_expert_capacity_factor {factor}", ", ".join(sorted(_BALANCED)))
    if run.is_on(pads):
        if factor is None or factor < 0:
            yield wrong(pads, "true without moe_expert_capacity_factor", "false", to=False)
        elif run.text_or_none(_DISPATCHER) == "flex" and backend == "deepep":
            yield wrong(pads, "true with deepep", "false", to=False)
    rank_factor = "model.moe_expert_rank_capacity_factor"
    if run.is_set(rank_factor):
        if backend not in _WITH_RANK_CAPACITY:
            yield wrong(rank_factor, f"set with moe_flex_dispatcher_backend {backend}", "None", to=None)
        elif backend == "hybridep" and not run.is_on("model.use_transformer_engine_op_fuser"):
            yield wrong(rank_factor, "set with hybridep without use_transformer_engine_op_fuser", "None", to=None)


@fixable_rule(
    "BP833",
    ERROR,
    "core/transformer/transformer_config.py:1612,1645-1649",
    noticed=VALIDATE,
    evidence=EXECUTED,
)
def dispatcher_without_what_is_asked(run: Run) -> Found:
    """The token dispatcher does not support another setting of the run.

    Bad: moe_shared_expert_overlap true, shared experts, allgather. Good: alltoall.
    Fix: Set {model.moe_token_dispatcher_type} to alltoall, or to flex if {model.moe_flex_dispatcher_backend} is set.
    """
    dispatcher = run.text_or_none(_DISPATCHER)
    overlaps = run.is_on("model.moe_shared_expert_overlap") and run.is_set("model.moe_shared_expert_intermediate_size")
    if overlaps and dispatcher not in ("alltoall", "flex"):
        yield wrong(_DISPATCHER, f"{dispatcher} with moe_shared_expert_overlap true", "alltoall or flex", to="alltoall")
    if dispatcher != "flex" and run.text_or_none(_BACKEND) == "ncclep":
        fix = say("Set {model.moe_token_dispatcher_type} to flex.")
        yield wrong(_DISPATCHER, f"{dispatcher} with ncclep", "flex", to="flex", fix=fix)
