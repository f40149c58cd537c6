"""Rules on CUDA graphs over packs."""

from collections.abc import Iterator

from bridgepack.records.messages import say
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import (
    ERROR,
    EXECUTED,
    VALIDATE,
    WARNING,
    Found,
    change,
    fixable_rule,
    rule,
    wrong,
)
from bridgepack.rules.judging.subject import HAS_SPECS, PACKS_IN_BATCH, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import GRAPH_IMPLS, GraphCapture, graph_capture, graph_entries

_IMPL, _MODULES, _SCOPE = "model.cuda_graph_impl", "model.cuda_graph_modules", "model.cuda_graph_scope"
_NAN_CHECK = "rerun_state_machine.check_for_nan_in_loss"
#: Model classes whose construction requires the graph-safe random state.
_CHECKS_RANDOM_STATE = frozenset({"GPTModelProvider", "MLAModelProvider", "GPTModelConfig"})


def _is_captured(capture: GraphCapture) -> bool:
    """Return whether training steps are captured; local graphs under their new name are for inference only."""
    return capture.is_training or (capture.is_on and capture.path != _IMPL)


def _describe(capture: GraphCapture) -> str:
    modules = f" of {', '.join(capture.modules)}" if capture.modules else ""
    return f"{capture.impl} graphs{modules}"


@fixable_rule("BP921", ERROR, "PSC101; bridge/training/config.py:1172-1179", when=PACKS_OFFLINE, noticed=VALIDATE)
def graphs_over_packs_of_varying_width(run: Run) -> Found:
    """CUDA graphs are on, but packs are not all padded to the same width.

    Why: Crash in validate(), because a graph replays one shape. The check misses the old external_cuda_graph, where the
        first pack of another width breaks the replay.
    Bad: cuda_graph_impl transformer_engine, no pad_to_max_length. Good: pad_to_max_length true.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true. Evidence: executed with the real 0.6.2.
    """
    capture, path = graph_capture(run), "dataset.dataset_kwargs.pad_to_max_length"
    if _is_captured(capture) and not run.pads_to_max_length:
        actual, why = f"not true with {_describe(capture)}", "a graph replays one width"
        yield wrong(path, actual, "true with CUDA graphs", to=True, because=why)


@rule("BP922", ERROR, "PSC102; bridge/training/config.py:1181-1188", when=HAS_SPECS, noticed=VALIDATE)
def captured_attention_with_varying_boundaries(run: Run) -> Found:
    """CUDA graphs capture packed attention, but the number of boundaries differs from pack to pack.

    Why: Crash in validate(), because a graph replays one shape of cu_seqlens. With the old external_cuda_graph
        validate() does not ask, and the replay refuses packs with padded boundaries, too (BP923).
    Bad: cuda_graph_impl full_iteration, pad_cu_seqlens false. Good: pad_cu_seqlens true, and metadata.
    Fix: Set {dataset.offline_packing_specs.pad_cu_seqlens} to true and
        {dataset.offline_packing_specs.packed_metadata_path} to correct metadata.
    Evidence: executed with the real 0.6.2; Bridge #5344, #5425.
    """
    capture = graph_capture(run)
    is_asked = capture.captures_attention and capture.path == _IMPL
    if is_asked and not run.flag(f"{SPECS}.pad_cu_seqlens"):
        yield wrong(f"{SPECS}.pad_cu_seqlens", f"false with {_describe(capture)}", "true if attention is captured")


@fixable_rule(
    "BP923",
    ERROR,
    "PSC103; core/transformer/transformer_layer.py:1217-1232",
    when=PACKS_OFFLINE,
    noticed="first replay",
)
def layer_graphs_around_packed_attention(run: Run) -> Found:
    """CUDA graphs of TransformerEngine capture attention, but their replay refuses packs.

    Why: Crash at the first replay, after the warm-up steps: "CUDA graph accepts only Tensor inputs." validate() accepts
        it if pad_cu_seqlens is on.
    Bad: cuda_graph_impl transformer_engine with no modules or with attn, packing on. Good: [mlp].
    Fix: Capture modules without attention, or use {model.cuda_graph_impl} full_iteration, or none.
    Evidence: read in megatron-core 0.19.2; Megatron-LM #5619, #4359; TransformerEngine #2898.
    """
    capture = graph_capture(run)
    if capture.impl == "transformer_engine" and capture.captures_attention:
        actual, why = f"{_describe(capture)}, attention included", "the replay does not support packs"
        allowed_values = "modules without attn, full_iteration or none with packs"
        yield wrong(capture.path, actual, allowed_values, to=capture.off, because=why)


@fixable_rule("BP837", ERROR, when=PACKS_OFFLINE, versions={BRIDGE: ">=0.7"}, noticed="first step")
def router_graph_over_packed_padding(run: Run) -> Found:
    """CUDA graphs capture the router of experts, which gets the padding of packs from the batch.

    Why: Crash at the first step: "Packed MoE padding masks do not support router-scoped Transformer Engine CUDA
        graphs". Megatron-Bridge 0.6 gives no such mask and trains.
    Bad: cuda_graph_impl transformer_engine with moe_router, packing on. Good: modules without moe, moe_router and
        moe_preprocess, or cuda_graph_impl none.
    Fix: Capture modules without the router, e.g. mlp for the dense layers, or set {model.cuda_graph_impl} to none.
    Evidence: executed with main of 2026-08-22.
    Source: bridge/training/gpt_step.py (_validate_packed_moe_cuda_graph) of 0.7
    """
    capture = graph_capture(run)
    if capture.setting != "transformer_engine" or not run.integer_or_none("model.num_moe_experts"):
        return
    if not capture.modules or {"moe", "moe_router", "moe_preprocess"} & set(capture.modules):
        actual, why = f"{_describe(capture)}, router included", "a graph cannot take the mask of packed padding"
        yield wrong(capture.path, actual, "modules without the router with packs", to=capture.off, because=why)


@fixable_rule("BP924", ERROR, "PSC104; bridge/utils/cuda_graph.py:134-155", noticed=VALIDATE)
def local_graphs_of_layers(run: Run) -> Found:
    """CUDA graphs are local but not of the full iteration.

    Why: Crash in validate(), because the host has local graphs for whole iterations and for inference only.
    Bad: cuda_graph_impl local, cuda_graph_modules [attn]. Good: cuda_graph_impl full_iteration.
    Fix: Set {model.cuda_graph_impl} to full_iteration, to transformer_engine with modules, or to none.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(run)
    if capture.setting != "local" or capture.is_full_iteration:
        return
    inference = run.text_or_none("model.inference_cuda_graph_scope") if capture.is_on else None
    if capture.modules or inference not in ("layer", "block"):
        allowed_values = "none, transformer_engine, full_iteration"
        yield wrong(_IMPL, _describe(capture), allowed_values, to="none", because="the host has no such graphs")


@fixable_rule("BP925", ERROR, "PSC105; bridge/training/config.py:1369-1374", noticed=VALIDATE, evidence=EXECUTED)
def full_iteration_graph_checks_loss(run: Run) -> Found:
    """The loss is checked for NaN inside a CUDA graph of the full iteration.

    Why: Crash in validate(), because the check copies the loss to the CPU, which a graph cannot do.
    Bad: cuda_graph_impl full_iteration, check_for_nan_in_loss true. Good: check_for_nan_in_loss false.
    Fix: Set {rerun_state_machine.check_for_nan_in_loss} to false.
    """
    if graph_capture(run).is_full_iteration and run.flag(_NAN_CHECK):
        actual, allowed_values = (f"{value} with a full-iteration graph" for value in ("true", "false"))
        yield wrong(_NAN_CHECK, actual, allowed_values, to=False, because="the check cannot be captured")


@rule("BP920", WARNING, when=PACKS_OFFLINE, noticed="capture", evidence="read in the source of 0.6.2; not run")
def full_iteration_graph_of_packs(run: Run) -> Found:
    """A full-iteration CUDA graph captures packs, whose max_seqlen is copied to the CPU inside the graph.

    Why: Crash at capture, as read in the source: the forward step copies max_seqlen_q to the CPU, which CUDA refuses.
    Bad: cuda_graph_impl full_iteration, enable_offline_packing true.
    Good: cuda_graph_impl transformer_engine with [mlp].
    Fix: Capture parts without attention instead, or try two steps on one node first.
    Source: bridge/training/gpt_step.py, get_batch_from_iterator; core/full_cuda_graph.py
    """
    if graph_capture(run).is_full_iteration:
        allowed_values = "transformer_engine graphs of modules without attention"
        yield wrong(graph_capture(run).path, "a full-iteration graph of packs", allowed_values)


@fixable_rule(
    "BP926",
    ERROR,
    when=PACKS_IN_BATCH,
    noticed="capture or replay",
    evidence="read in megatron-bridge 0.6.2",
)
def graphs_with_in_batch_packing(run: Run) -> Found:
    """CUDA graphs are on with in-batch packing, whose packs have varying widths.

    Why: Crash at capture or replay, or stale shapes: the host neither pads such packs to one width nor checks them.
    Bad: enable_in_batch_packing true, cuda_graph_impl transformer_engine. Good: cuda_graph_impl none.
    Fix: Set {model.cuda_graph_impl} to none, or pack offline.
    Source: PSC106; bridge/training/config.py:1162; bridge/data/collators/sft.py:101
    """
    capture = graph_capture(run)
    if _is_captured(capture):
        actual, why = f"{_describe(capture)} with enable_in_batch_packing", "such packs have varying widths"
        yield wrong(capture.path, actual, "no graphs with packing in the batch", to=capture.off, because=why)


@fixable_rule("BP927", ERROR, noticed="setup", evidence="read in megatron-bridge 0.6.2")
def graphs_without_graph_safe_random_state(run: Run) -> Found:
    """CUDA graphs are on without TransformerEngine's RNG tracker.

    Why: Crash when the model is built: "Transformer engine's RNG tracker is required for cudagraphs".
    Bad: cuda_graph_impl full_iteration, te_rng_tracker false (the default). Good: te_rng_tracker true.
    Fix: Set {rng.te_rng_tracker} to true; the host copies it to the model.
    Source: PSC107; bridge/models/gpt_provider.py:231-238; megatron/training/models/gpt.py:216;
        bridge/training/config.py:1276
    """
    capture = graph_capture(run)
    if not capture.is_on or run.class_name("model") not in _CHECKS_RANDOM_STATE:
        return
    if not run.flag("rng.te_rng_tracker") and not run.stated_value("model.use_te_rng_tracker"):
        actual, why = f"false with {_describe(capture)}", "graphs need random states that they can replay"
        yield wrong("rng.te_rng_tracker", actual, "true with CUDA graphs", to=True, because=why)


_KNOWN_MODULES = frozenset({"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"})


@fixable_rule("BP815", ERROR, "PSB815; core/transformer/transformer_config.py:2521-2526", noticed=VALIDATE)
def full_recompute_inside_layer_graphs(run: Run) -> Found:
    """Full recompute is on while CUDA graphs capture parts of layers.

    Why: Crash in validate(): "full recompute is only supported with full iteration CUDA graph."
    Bad: recompute_granularity full, cuda_graph_impl transformer_engine. Good: recompute_granularity selective.
    Fix: Set {model.recompute_granularity} to selective, or {model.cuda_graph_impl} to none.
    Evidence: read in megatron-core 0.19.2.
    """
    path = "model.recompute_granularity"
    if run.stated_value(path) in (None, "selective"):
        return
    capture = graph_capture(run)
    if capture.is_on and not capture.is_full_iteration:
        actual, allowed_values = (
            f"{run.value(path)} with {capture.impl} graphs",
            "selective or null with graphs of layers",
        )
        changes = change(capture.path, capture.off, "full recompute saves the memory; graphs only save time")
        yield wrong(path, actual, allowed_values, changes=changes)


@fixable_rule("BP817", ERROR, "PSC101, PSC104; core/transformer/transformer_config.py:2365-2463", evidence=EXECUTED)
def graph_settings_contradict(run: Run) -> Found:
    """CUDA graph settings, new and old, contradict each other.

    Why: Crash in validate(): megatron-core accepts only one of the settings, and modules only if layers are captured.
    Bad: cuda_graph_impl full_iteration with cuda_graph_modules [attn]; or external_cuda_graph true as well.
    Good: no modules. Fix: Use only {model.cuda_graph_impl} and {model.cuda_graph_modules}. Noticed: validate().
    """
    capture = graph_capture(run)
    yield from _wrong_inference_scope(run, capture)
    old = [name for name in ("enable_cuda_graph", "external_cuda_graph") if run.stated_value(f"model.{name}")]
    if old and (len(old) > 1 or capture.setting != "none"):
        actual = f"{' and '.join(old)} true, cuda_graph_impl {capture.setting}"
        yield wrong(f"model.{old[0]}", actual, "one of the three")
    if run.is_stated(_IMPL) and run.value(_IMPL) is None:
        yield wrong(_IMPL, "None", ", ".join(GRAPH_IMPLS), to="none", because="graphs are off")
    elif capture.setting not in GRAPH_IMPLS:
        yield wrong(_IMPL, capture.setting, ", ".join(GRAPH_IMPLS))
    if capture.setting == "none":
        return
    modules, scope = graph_entries(run, _MODULES), graph_entries(run, _SCOPE)
    if run.stated_value(_SCOPE) is not None and modules not in ((), ("full",), ("",)):
        yield wrong(_SCOPE, f"{scope} with {modules}", say("not set; {model.cuda_graph_modules} replaces it"))
    yield from _wrong_entries(capture)


def _wrong_inference_scope(run: Run, capture: GraphCapture) -> Found:
    path = "model.inference_cuda_graph_scope"
    scope = run.text_or_none(path) if run.is_stated(path) else None
    fits = scope in ("layer", "block") if capture.impl == "local" else scope == "none"
    if scope is not None and not fits:
        allowed_values = "layer or block" if capture.impl == "local" else f"none with cuda_graph_impl {capture.impl}"
        yield wrong(path, scope, allowed_values)


def _wrong_entries(capture: GraphCapture) -> Found:
    if capture.setting == "full_iteration" and capture.modules:
        yield wrong(_MODULES, ", ".join(capture.modules), "none with full_iteration")
    if "full_iteration" in capture.scopes and capture.setting == "transformer_engine":
        yield wrong(_MODULES, "full_iteration", "modules of a layer with transformer_engine")
    foreign_modules = [name for name in capture.modules if name not in _KNOWN_MODULES]
    if foreign_modules:
        yield wrong(_MODULES, ", ".join(foreign_modules), ", ".join(sorted(_KNOWN_MODULES)))


@rule("BP818", ERROR, "PSC103, PSB815; core/transformer/transformer_config.py:2467-2520", noticed=VALIDATE)
def graph_modules_do_not_fit_the_model(run: Run) -> Found:
    """CUDA graphs capture modules that this model does not have, or that cannot be captured.

    Why: Crash in validate(): megatron-core checks each module against the model.
    Bad: cuda_graph_modules [moe_router] for a model without experts. Good: cuda_graph_modules [mlp] for it.
    Fix: Capture modules that the model has: mlp for dense layers, moe_router for MoE layers.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(run)
    if not capture.is_on or capture.is_full_iteration:
        return
    if run.stated_value("model.cpu_offloading") is True:
        yield wrong("model.cpu_offloading", "true with graphs of layers", "false with graphs")
    for actual, allowed_values in _misfits(run, frozenset(capture.modules)):
        yield wrong(_MODULES, actual, allowed_values)


def _misfits(run: Run, modules: frozenset[str]) -> Iterator[tuple[str, str]]:
    if {"moe", "moe_router"} <= modules:
        yield "moe and moe_router", "one of the two"
    if "moe_preprocess" in modules and "moe_router" not in modules:
        yield "moe_preprocess without moe_router", "both, or neither"
    if (run.integer_or_none("model.num_moe_experts") or 0) <= 1:
        if modules & {"moe", "moe_router"}:
            yield f"{', '.join(sorted(modules & {'moe', 'moe_router'}))} without experts", "mlp, attn"
        return
    if "mlp" in modules and _has_only_expert_layers(run):
        yield "mlp in a model whose layers all have experts", "moe_router"
    drops = run.stated_value("model.moe_expert_capacity_factor") is not None
    if "moe" in modules and not (drops and run.stated_value("model.moe_pad_expert_input_to_capacity")):
        yield "moe with experts without a token limit", "moe_router"


def _has_only_expert_layers(run: Run) -> bool:
    frequency = run.stated_value("model.moe_layer_freq")
    return frequency in (None, 1) or (isinstance(frequency, (list, tuple)) and 0 not in frequency)
