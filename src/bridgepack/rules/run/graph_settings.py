"""Rules on CUDA graph settings that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.engine.rule import ERROR, VALIDATE, Found, change, rule, wrong
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.run.kernel_facts import GraphCapture, graph_capture, graph_entries

_IMPLS = ("none", "local", "transformer_engine", "full_iteration")
_KNOWN_MODULES = frozenset({"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"})
_MODULES, _SCOPE = "model.cuda_graph_modules", "model.cuda_graph_scope"


@rule("BP815", ERROR, "PSB815; core/transformer/transformer_config.py:2521-2526", noticed=VALIDATE)
def full_recompute_inside_layer_graphs(run: Run) -> Found:
    """Activations of whole layers are recomputed while CUDA graphs capture parts of layers.

    Why: Crash in validate(): "full recompute is only supported with full iteration CUDA graph."
    Bad: recompute_granularity full, cuda_graph_impl transformer_engine.
    Good: recompute_granularity selective, cuda_graph_impl transformer_engine.
    Fix: Set model.recompute_granularity to selective, or model.cuda_graph_impl to none.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if run.stated("model.recompute_granularity") in (None, "selective"):
        return
    capture = graph_capture(run)
    if capture.is_on and not capture.is_full_iteration:
        yield wrong(
            "model.recompute_granularity",
            f"{run.value('model.recompute_granularity')} with {capture.impl} graphs",
            "selective or nothing with graphs of layers",
            changes=change(capture.path, capture.off, "full recompute saves the memory; graphs only save time"),
        )


@rule("BP817", ERROR, "PSC101, PSC104; core/transformer/transformer_config.py:2365-2463", noticed=VALIDATE)
def graph_settings_contradict(run: Run) -> Found:
    """CUDA graph settings, new and old ones, contradict each other.

    Why: Crash in validate(): megatron-core accepts one way to say it, and modules only where layers are captured.
    Bad: cuda_graph_impl full_iteration with cuda_graph_modules [attn]; or external_cuda_graph true besides.
    Good: cuda_graph_impl full_iteration with no modules.
    Fix: State graphs by model.cuda_graph_impl and model.cuda_graph_modules alone.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(run)
    yield from _wrong_inference_scope(run, capture)
    old = [name for name in ("enable_cuda_graph", "external_cuda_graph") if run.stated(f"model.{name}")]
    if old and (len(old) > 1 or capture.setting != "none"):
        allowed = "one of the three"
        yield wrong(f"model.{old[0]}", f"{' and '.join(old)} true, cuda_graph_impl {capture.setting}", allowed)
    if capture.setting not in _IMPLS:
        yield wrong("model.cuda_graph_impl", capture.setting, ", ".join(_IMPLS))
    if capture.setting == "none":
        return
    modules, scope = graph_entries(run, _MODULES), graph_entries(run, _SCOPE)
    if run.stated(_SCOPE) is not None and modules not in ((), ("full",), ("",)):
        yield wrong(_SCOPE, f"{scope} besides {modules}", f"nothing; {_MODULES} replaces it")
    yield from _wrong_entries(capture)


def _wrong_inference_scope(run: Run, capture: GraphCapture) -> Found:
    path = "model.inference_cuda_graph_scope"
    scope = run.text_or_none(path) if run.is_stated(path) else None
    fits = scope in ("layer", "block") if capture.impl == "local" else scope == "none"
    if scope is not None and not fits:
        allowed = "layer or block" if capture.impl == "local" else f"none with cuda_graph_impl {capture.impl}"
        yield wrong(path, scope, allowed)


def _wrong_entries(capture: GraphCapture) -> Found:
    if capture.setting == "full_iteration" and capture.modules:
        yield wrong(_MODULES, ", ".join(capture.modules), "none with full_iteration")
    if "full_iteration" in capture.scopes and capture.setting == "transformer_engine":
        yield wrong(_MODULES, "full_iteration", "modules of a layer with transformer_engine")
    unknown = [name for name in capture.modules if name not in _KNOWN_MODULES]
    if unknown:
        yield wrong(_MODULES, ", ".join(unknown), ", ".join(sorted(_KNOWN_MODULES)))


@rule("BP818", ERROR, "PSC103, PSB815; core/transformer/transformer_config.py:2467-2520", noticed=VALIDATE)
def graph_modules_do_not_fit_the_model(run: Run) -> Found:
    """CUDA graphs are to capture modules that this model does not have or cannot have captured.

    Why: Crash in validate(): megatron-core checks each module against the model.
    Bad: cuda_graph_modules [moe_router] for a model without experts.
    Good: cuda_graph_modules [mlp] for it.
    Fix: Capture modules that the model has: mlp for dense layers, moe_router for layers of experts.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(run)
    if not capture.is_on or capture.is_full_iteration:
        return
    if run.stated("model.cpu_offloading") is True:
        yield wrong("model.cpu_offloading", "true with graphs of layers", "false with graphs")
    for found, allowed in _misfits(run, frozenset(capture.modules)):
        yield wrong(_MODULES, found, allowed)


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
    drops = run.stated("model.moe_expert_capacity_factor") is not None
    if "moe" in modules and not (drops and run.stated("model.moe_pad_expert_input_to_capacity")):
        yield "moe with experts that take any number of tokens", "moe_router"


def _has_only_expert_layers(run: Run) -> bool:
    frequency = run.stated("model.moe_layer_freq")
    return frequency in (None, 1) or (isinstance(frequency, (list, tuple)) and 0 not in frequency)
