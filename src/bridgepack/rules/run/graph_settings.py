"""Rules on CUDA graph settings that contradict each other or the model."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ERROR, Violation
from bridgepack.rules.run.kernel_facts import GraphCapture, graph_capture, graph_entries, stated
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject

_IMPLS = ("none", "local", "transformer_engine", "full_iteration")
_KNOWN_MODULES = frozenset({"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"})
_MODULES, _SCOPE = "model.cuda_graph_modules", "model.cuda_graph_scope"


@rule("BP815", ERROR, "PSB815; megatron/core/transformer/transformer_config.py:2521-2526", noticed="validate()")
def full_recompute_inside_layer_graphs(subject: RunSubject) -> Iterator[Violation]:
    """Activations of whole layers are recomputed while CUDA graphs capture parts of layers.

    Why: Crash in validate(): "full recompute is only supported with full iteration CUDA graph."
    Bad: recompute_granularity full, cuda_graph_impl transformer_engine.
    Good: recompute_granularity selective, cuda_graph_impl transformer_engine.
    Fix: Set model.recompute_granularity to selective, or model.cuda_graph_impl to none.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if stated(subject, "model.recompute_granularity") in (None, "selective"):
        return
    capture = graph_capture(subject)
    if capture.is_on and not capture.is_full_iteration:
        yield Violation(
            where="model.recompute_granularity",
            found=f"{subject.settings.value('model.recompute_granularity')} with {capture.impl} graphs",
            allowed="selective or nothing with graphs of layers",
            changes=change(capture.path, capture.off, "full recompute saves the memory; graphs only save time"),
        )


@rule("BP817", ERROR, "PSC101, PSC104; megatron/core/transformer/transformer_config.py:2365-2463", noticed="validate()")
def graph_settings_contradict(subject: RunSubject) -> Iterator[Violation]:
    """CUDA graph settings, new and old ones, contradict each other.

    Why: Crash in validate(): megatron-core accepts one way to say it, and modules only where layers are captured.
    Bad: cuda_graph_impl full_iteration with cuda_graph_modules [attn]; or external_cuda_graph true besides.
    Good: cuda_graph_impl full_iteration with no modules.
    Fix: State graphs by model.cuda_graph_impl and model.cuda_graph_modules alone.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(subject)
    yield from _wrong_inference_scope(subject, capture)
    old = [name for name in ("enable_cuda_graph", "external_cuda_graph") if stated(subject, f"model.{name}")]
    if old and (len(old) > 1 or capture.setting != "none"):
        yield Violation(
            where=f"model.{old[0]}",
            found=f"{' and '.join(old)} true, cuda_graph_impl {capture.setting}",
            allowed="one of the three",
        )
    if capture.setting not in _IMPLS:
        yield Violation(where="model.cuda_graph_impl", found=capture.setting, allowed=", ".join(_IMPLS))
    if capture.setting == "none":
        return
    modules, scope = graph_entries(subject, _MODULES), graph_entries(subject, _SCOPE)
    if stated(subject, _SCOPE) is not None and modules not in ((), ("full",), ("",)):
        yield Violation(where=_SCOPE, found=f"{scope} besides {modules}", allowed=f"nothing; {_MODULES} replaces it")
    yield from _wrong_entries(capture)


def _wrong_inference_scope(subject: RunSubject, capture: GraphCapture) -> Iterator[Violation]:
    path = "model.inference_cuda_graph_scope"
    scope = subject.settings.text_or_none(path) if subject.settings.is_stated(path) else None
    fits = scope in ("layer", "block") if capture.impl == "local" else scope == "none"
    if scope is not None and not fits:
        allowed = "layer or block" if capture.impl == "local" else f"none with cuda_graph_impl {capture.impl}"
        yield Violation(where=path, found=scope, allowed=allowed)


def _wrong_entries(capture: GraphCapture) -> Iterator[Violation]:
    if capture.setting == "full_iteration" and capture.modules:
        yield Violation(where=_MODULES, found=", ".join(capture.modules), allowed="none with full_iteration")
    if "full_iteration" in capture.scopes and capture.setting == "transformer_engine":
        yield Violation(where=_MODULES, found="full_iteration", allowed="modules of a layer with transformer_engine")
    unknown = [name for name in capture.modules if name not in _KNOWN_MODULES]
    if unknown:
        yield Violation(where=_MODULES, found=", ".join(unknown), allowed=", ".join(sorted(_KNOWN_MODULES)))


@rule("BP818", ERROR, "PSC103, PSB815; megatron/core/transformer/transformer_config.py:2467-2520", noticed="validate()")
def graph_modules_do_not_fit_the_model(subject: RunSubject) -> Iterator[Violation]:
    """CUDA graphs are to capture modules that this model does not have or cannot have captured.

    Why: Crash in validate(): megatron-core checks each module against the model.
    Bad: cuda_graph_modules [moe_router] for a model without experts.
    Good: cuda_graph_modules [mlp] for it.
    Fix: Capture modules that the model has: mlp for dense layers, moe_router for layers of experts.
    Evidence: executed with the real 0.6.2.
    """
    capture = graph_capture(subject)
    if not capture.is_on or capture.is_full_iteration:
        return
    if stated(subject, "model.cpu_offloading") is True:
        yield Violation(where="model.cpu_offloading", found="true with graphs of layers", allowed="false with graphs")
    for found, allowed in _misfits(subject, frozenset(capture.modules)):
        yield Violation(where=_MODULES, found=found, allowed=allowed)


def _misfits(subject: RunSubject, modules: frozenset[str]) -> Iterator[tuple[str, str]]:
    if {"moe", "moe_router"} <= modules:
        yield "moe and moe_router", "one of the two"
    if "moe_preprocess" in modules and "moe_router" not in modules:
        yield "moe_preprocess without moe_router", "both, or neither"
    if (subject.settings.integer_or_none("model.num_moe_experts") or 0) <= 1:
        if modules & {"moe", "moe_router"}:
            yield f"{', '.join(sorted(modules & {'moe', 'moe_router'}))} without experts", "mlp, attn"
        return
    if "mlp" in modules and _has_only_expert_layers(subject):
        yield "mlp in a model whose layers all have experts", "moe_router"
    drops = stated(subject, "model.moe_expert_capacity_factor") is not None
    if "moe" in modules and not (drops and stated(subject, "model.moe_pad_expert_input_to_capacity")):
        yield "moe with experts that take any number of tokens", "moe_router"


def _has_only_expert_layers(subject: RunSubject) -> bool:
    frequency = stated(subject, "model.moe_layer_freq")
    return frequency in (None, 1) or (isinstance(frequency, (list, tuple)) and 0 not in frequency)
