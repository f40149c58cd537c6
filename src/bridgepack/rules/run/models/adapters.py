"""Rules on adapters (LoRA, DoRA): whether their targets are layers of the model, and whether they can train."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from bridgepack.host.module_names import equivalent_targets, is_foreign, is_target
from bridgepack.host.modules import (
    DEFAULT_TARGETS,
    Architecture,
    Linear,
    architecture_of,
    pattern_of,
)
from bridgepack.records import Change
from bridgepack.records.messages import say
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ERROR, EXECUTED, WARNING, Found, Violation, change, fixable_rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.models.adapter_gradients import Gradients, gradients_of
from bridgepack.rules.run.models.adapter_reading import (
    TARGETS,
    adapter_of,
    architecture,
    has_adapters,
    has_targets,
    is_default,
    model_settings,
    targets_of,
    trained_linears,
    usual_targets,
)
from bridgepack.rules.run.reading import acting, graph_capture

_MODULES, _METHOD = "model.recompute_modules", "model.recompute_method"
_GRANULARITY, _PATTERN = "model.recompute_granularity", "model.hybrid_layer_pattern"
#: Deprecated; megatron-core adds `moe` to recompute_modules. Source: core/transformer/transformer_config.py:1835-1846.
_OLD_NAME = "model.moe_layer_recompute"
#: Likeness of two names, from 0 to 1, from which one is the other misspelt.
_BEYOND_DOUBT = 0.85
_NAMES = "the host's names, as linear_qkv, linear_proj, linear_fc1 and linear_fc2"
_WITHOUT_ENGINE = "executed with megatron-core's own linear layers; what needs TransformerEngine's, moe_act, is read"
_MIXERS = {
    "mla": "multi-latent attention",
    "mla_q": "multi-latent attention",
    "mla_fused": "multi-latent attention",
    "gated_delta_net": "gated delta net",
    "mamba": "Mamba",
}


@fixable_rule("BP840", ERROR, when=has_targets, noticed="first step, or never", evidence=EXECUTED)
def adapter_target_is_no_layer(run: Run) -> Found:
    """An adapter's target is not a linear layer of the model.

    Why: Silent: the others train, and only a line of the log names it. Crash at the first log line if none matches:
        "unsupported format string passed to NoneType". The host fuses layers, so Hugging Face's names match nothing.
    Bad: target_modules [q_proj, v_proj]. Good: target_modules [linear_qkv].
    Fix: Use the model's own names, e.g. linear_qkv for q_proj, k_proj and v_proj, linear_proj for o_proj, linear_fc1
        for gate_proj and up_proj, linear_fc2 for down_proj.
    Source: bridge/peft/module_matcher.py:84-131,186-209; bridge/training/utils/train_utils.py
    """
    model, adapter, targets = (
        architecture_of(model_settings(run), run.versions.release),
        adapter_of(run),
        targets_of(run),
    )
    if model is None:
        yield from _foreign(run, targets)
        return
    targets_unknown = [target for target in targets if not is_target(target, model, adapter)]
    if not targets_unknown or is_default(run):
        return
    if model.prefix and not run.is_text:
        raise CannotJudgeError("the model's other parts, which read images or sound, may have layers of these names")
    targets_by_name = {target: _targets_for(target, model, adapter) for target in targets_unknown}
    new_targets = [name for target in targets for name in targets_by_name.get(target, (target,))]
    is_certain = all(targets_by_name.values()) and bool(new_targets)
    to = list(dict.fromkeys(new_targets))
    changes = change(TARGETS, to, "the model's own names of these layers") if is_certain else ()
    texts = [f"{target}: {', '.join(names) or 'no layer of its own'}" for target, names in targets_by_name.items()]
    is_all = len(targets_unknown) == len(targets)
    of_class = f"{'the language model of ' if model.prefix else ''}{run.class_name('model')}"
    actual = f"{', '.join(targets_unknown)}, {'none of them a' if is_all else 'no'} linear layer of {of_class}"
    allowed_values = f"names of its linear layers: {', '.join(model.names)}"
    fix = f"In this model: {'; '.join(texts)}."
    yield wrong(TARGETS, actual, allowed_values, changes=changes, fix=fix)


def _foreign(run: Run, targets: tuple[str, ...]) -> Found:
    """Yield a finding on names that no language model of the host has, where the layers of this one are not known."""
    foreign = [target for target in targets if is_foreign(target)]
    if not foreign or not run.is_text:
        raise CannotJudgeError("the linear layers of this model are not known here")
    yield wrong(TARGETS, f"{', '.join(foreign)}, names that the host's models do not have", _NAMES)


def _targets_for(target: str, model: Architecture, adapter: str) -> tuple[str, ...]:
    """Return the targets that a name stands for; empty if that is not certain."""
    names = equivalent_targets(target, model, adapter)
    return names or tuple(get_close_matches(target, model.names, n=1, cutoff=_BEYOND_DOUBT))


@fixable_rule("BP841", WARNING, when=has_targets, evidence=EXECUTED)
def mixers_without_adapters(run: Run) -> Found:
    """The adapters leave out all layers of one kind: Mamba, gated delta net, or the projections of latent attention.

    Why: Silent: the run trains less than it seems. The default targets of the adapters' class are those of a plain
        transformer: with latent attention they train linear_proj and the MLPs, and in Mamba layers nothing.
    Bad: multi_latent_attention true, target_modules [linear_qkv, linear_proj].
    Good: linear_q_proj, linear_kv_down_proj, linear_kv_up_proj and linear_proj.
    Fix: Add the layers to {peft.target_modules}, or list the layers that you want there.
    Source: bridge/peft/lora.py (target_modules); bridge/recipes/moonlight/h100/moonlight_16b.py:890;
        nemotronh/h100/nemotronh.py:1235
    """
    model, linears = architecture(run), trained_linears(run)
    if not linears:
        return
    usual = usual_targets(run)
    for mixer, number in model.mixers.items():
        names = [name for name in model.inputs_of(mixer) if name in usual]
        linears_of_mixer = {linear.name for linear in linears if linear.part == mixer}
        if mixer not in _MIXERS or not names or linears_of_mixer & set(names):
            continue
        layers = f"{number} layer{'s' if number > 1 else ''} of {_MIXERS[mixer]}"
        what_trains = "only linear_proj" if linears_of_mixer else "nothing"
        actual = f"{', '.join(targets_of(run))}, which trains {what_trains} of the mixer in {layers}"
        to = change(TARGETS, usual, f"{layers} get adapters, too") if is_default(run) else ()
        yield wrong(TARGETS, actual, f"targets with {', '.join(names)}", changes=to)


def recomputes_parts(run: Run) -> bool:
    """Return whether recomputation is on under adapters, and nothing makes the input require a gradient."""
    granularity = run.stated_value(_GRANULARITY)
    recomputes = granularity in ("selective", "full") or (granularity is None and run.is_on(_OLD_NAME))
    freezes = not (adapter_of(run) == "VLMLoRA" and run.stated_value("peft.freeze_language_model") is False)
    if not recomputes or not freezes or graph_capture(run).is_full_iteration:
        return False
    has_method = granularity == "full" or run.is_set(_METHOD)
    return not has_method or _keeps_input_frozen(run)


def _keeps_input_frozen(run: Run) -> bool:
    """Return whether the host leaves the input of a model's layers without a gradient, whatever the method."""
    return bool(run.stated_value(_PATTERN)) and not run.release.frees_hybrid_inputs


def _num_recomputed(run: Run, num_layers: int) -> int:
    """Return how many of the first stage's layers are recomputed as a whole, from its first one on."""
    if run.stated_value(_GRANULARITY) != "full":
        return 0
    is_block = run.stated_value(_METHOD) == "block"
    return run.integer("model.recompute_num_layers", default=1) if is_block else num_layers


def _gradients(run: Run) -> Gradients:
    model = architecture(run)
    if model.prefix and not run.is_text:
        raise CannotJudgeError("images may make the input of the language model require a gradient")
    modules = [*map(str, run.items(_MODULES)), *(["moe"] if run.is_on(_OLD_NAME) else [])]
    num_layers = _layers_of_first_stage(run, model)
    num_recomputed = _num_recomputed(run, num_layers)
    return gradients_of(model, trained_linears(run), modules, num_layers, num_recomputed=num_recomputed)


def _layers_of_first_stage(run: Run, model: Architecture) -> int:
    """Return how many layers the first stage surely has; later stages get activations that require a gradient."""
    stages = run.pipeline_model_parallel_size
    chunks = run.stated_integer("model.virtual_pipeline_model_parallel_size") or 1
    if stages == 1:
        return len(model.layers)
    pattern = run.stated_value(_PATTERN)
    if isinstance(pattern, str) and "|" in pattern:
        return len(pattern.partition("|")[0])
    if run.is_set("model.pipeline_model_parallel_layout"):
        return 1
    first = run.stated_integer("model.num_layers_in_first_pipeline_stage")
    return max((first or len(model.layers) // stages) // chunks, 1)


_UNIFORM = (
    "Set {model.recompute_method} to uniform, with which the host lets the input of the layers require a gradient; or "
    "give the first layer an adapter before it ({first}); or recompute other modules."
)


@fixable_rule("BP842", ERROR, when=(has_targets, recomputes_parts), evidence=EXECUTED)
def adapters_without_gradient(run: Run) -> Found:
    """The backward pass of adapters in recomputed parts is skipped, because no trained layer comes before them.

    Why: Silent: they never train. With all of them there, the gradient norm is 0 in every step, checkpoints are saved,
        and the run ends without an error. Megatron-Bridge 0.7 never lets the input of a hybrid model's layers require
        a gradient, so that whole recomputed layers do not train there.
    Bad: target_modules [linear_fc1, linear_fc2], recompute_granularity selective, recompute_modules [mlp].
    Good: target_modules [linear_qkv, linear_fc1, linear_fc2].
    Fix: Add linear_qkv to {peft.target_modules}, set {model.recompute_method} to uniform, or turn recomputation off.
    Source: core/tensor_parallel/random.py:581-675; core/transformer/transformer_layer.py:882;
        core/transformer/moe/moe_layer.py:510,694; core/pipeline_parallel/schedules.py:570; bridge/peft/recompute.py:47
    """
    without, linears = _gradients(run).without, trained_linears(run)
    if not without:
        return
    is_whole = run.stated_value(_GRANULARITY) == "full"
    regions = ["whole layers"] if is_whole else list(dict.fromkeys(linear.region for linear in without))
    layers = sorted({linear.layer for linear in without if linear.layer is not None})
    names = ", ".join(dict.fromkeys(linear.name for linear in without))
    decoder = [linear for linear in linears if linear.layer is not None]
    share = "all" if len(without) == len(decoder) else f"{len(without)} of {len(decoder)}"
    spread = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    actual = f"{', '.join(regions)}, with adapters on {names} in {spread} ({share} adapters) that get no gradient"
    path, allowed_values = (_GRANULARITY, "null") if is_whole else (_MODULES, "modules after a trained one")
    yield wrong(path, actual, allowed_values, changes=_uniform(run), fix=_fix(run))


def _uniform(run: Run) -> tuple[Change, ...]:
    """Return the change, which the overlap of expert communication forbids: BP830."""
    if run.stated_value(acting(run, "overlap_moe_expert_parallel_comm")) or _keeps_input_frozen(run):
        return ()
    return change(_METHOD, "uniform", "the host then lets the input of the layers require a gradient")


def _fix(run: Run) -> str:
    if _keeps_input_frozen(run):
        return f"Turn recomputation off; Megatron-Bridge {run.release.name} does not do it for hybrid models' adapters."
    return say(_UNIFORM, first=", ".join(architecture(run).targets(adapter_of(run))[:1]))


@fixable_rule("BP843", ERROR, when=(has_targets, recomputes_parts), noticed="first step", evidence=_WITHOUT_ENGINE)
def recomputed_norm_before_first_adapter(run: Run) -> Found:
    """A recomputed norm, activation or projection beside the first adapter has a partly frozen input.

    Why: Crash in the first backward pass: "forward() missing 1 required positional argument", as the host has not kept
        a frozen input; or "element 0 of tensors does not require grad".
    Bad: multi-latent attention, LoRA on linear_q_proj, recompute_modules [layernorm]. Good: recompute_method uniform.
    Fix: Set {model.recompute_method} to uniform, or take the entry out of {model.recompute_modules}.
    Source: core/tensor_parallel/random.py:678-855; core/transformer/transformer_layer.py:632,765
    """
    for entry, layer in _gradients(run).broken[:1]:
        actual = f"{entry}, whose input in layer {layer} is frozen or partly frozen, beside an adapter"
        fix = say(
            "Set {model.recompute_method} to uniform, or take {entry} out of {model.recompute_modules}.", entry=entry
        )
        yield wrong(_MODULES, actual, "entries whose input requires a gradient", changes=_uniform(run), fix=fix)


#: Layers whose input is split over tensor-parallel ranks.
_SPLIT_BY_ROWS = frozenset({"linear_proj", "linear_fc2", "out_proj"})
_INITS = ("xavier", "kaiming", "normal", "zero")


@fixable_rule("BP844", ERROR, when=has_adapters, noticed="first step, or never", evidence=EXECUTED)
def adapters_that_cannot_train(run: Run) -> Found:
    """The adapters cannot train with these numbers.

    Why: Silent with alpha 0, dropout 1 or two matrices of zeros: every gradient is 0. Crash otherwise, when the model
        is built or at the first step.
    Bad: peft.alpha 0. Good: peft.dim 32, alpha 32. Fix: Set dim and alpha above 0, and dropout below 1.
    Source: bridge/peft/utils.py:1005-1120; bridge/peft/dora.py (__post_init__)
    """
    for name in ("dim", "alpha"):
        value = run.number_or_none(f"peft.{name}")
        if value is not None and value <= 0:
            yield wrong(f"peft.{name}", f"{value:g}", "above 0")
    dropout = run.number_or_none("peft.dropout")
    if dropout is not None and not 0 <= dropout < 1:
        yield wrong("peft.dropout", f"{dropout:g}", "0 up to, but not, 1")
    inits = [run.text_or_none(f"peft.lora_{matrix}_init_method") for matrix in "AB"]
    for matrix, init in zip("AB", inits, strict=True):
        if init is not None and init not in _INITS:
            yield wrong(f"peft.lora_{matrix}_init_method", init, ", ".join(_INITS))
    if inits == ["zero", "zero"]:
        actual = "zero, as lora_B_init_method"
        yield wrong("peft.lora_A_init_method", actual, "xavier", to="xavier", because="one matrix must not be zero")
    if adapter_of(run) == "DoRA" and run.stated_value("peft.dropout_position") not in (None, "pre"):
        yield wrong("peft.dropout_position", "post with DoRA", "pre", to="pre", because="DoRA has no other")
    yield from _require_division(run)


@fixable_rule("BP845", ERROR, when=has_adapters, noticed="model build, or first step", evidence=EXECUTED)
def targets_that_the_class_refuses(run: Run) -> Found:
    """The lists of targets contradict each other, or have entries that the adapters' class does not take.

    Why: Crash when the adapters are made, or at the first step.
    Bad: target_modules [linear_qkv] with exclude_modules [linear_proj]. Good: exclude_modules empty.
    Fix: Set one of {peft.target_modules} and {peft.exclude_modules}; name q, k and v together for CanonicalLoRA.
    Source: bridge/peft/module_matcher.py:118,125; bridge/peft/canonical_lora.py:150-275; bridge/peft/utils.py:722
    """
    adapter, targets = adapter_of(run), targets_of(run)
    if targets and run.items("peft.exclude_modules"):
        exclusions = ", ".join(map(str, run.items("peft.exclude_modules")))
        why = "target_modules says it already"
        yield wrong("peft.exclude_modules", f"{exclusions} with target_modules", "empty", to=[], because=why)
    for target in targets:
        try:
            re.compile(target.replace("*", "(.*)"))
        except re.error as error:
            yield wrong(TARGETS, f"{target}, which is no pattern: {error}", "names, with * for any text")
    if adapter == "CanonicalLoRA":
        yield from _refused_by_canonical(targets)


def _refused_by_canonical(targets: tuple[str, ...]) -> Iterator[Violation]:
    for joint in ("linear_qkv", "linear_fc1"):
        parts = [part for part in DEFAULT_TARGETS["CanonicalLoRA"] if pattern_of(part, "CanonicalLoRA") == joint]
        places = {pattern_of(target, "CanonicalLoRA") for target in targets if target.endswith(tuple(parts))}
        for place in sorted(places):
            missing = [part for part in parts if place.replace(joint, part) not in targets]
            if missing:
                missing_parts = ", ".join(place.replace(joint, part) for part in missing)
                yield wrong(
                    TARGETS, f"{', '.join(targets)} without {missing_parts}", f"all of {', '.join(parts)}, or none"
                )
        if any(target.endswith(joint) for target in targets):
            yield wrong(TARGETS, f"{joint} with CanonicalLoRA", f"{', '.join(parts)}, or {joint} with LoRA")


def _require_division(run: Run) -> Found:
    """Yield a finding on a rank that tensor parallelism does not divide: the first matrix is split by its rows.

    Beside a layer that is split by its columns (the default), not beside one that is split by its rows.
    """
    dim, tensor = run.stated_integer("peft.dim"), run.tensor_model_parallel_size
    if dim is None or dim <= 0 or tensor <= 1 or dim % tensor == 0 or not has_targets(run):
        return
    try:
        split = [linear.name for linear in trained_linears(run) if not _is_of_expert(linear)]
    except CannotJudgeError:  # the layers are not known, which says nothing of the other numbers
        return
    names = [name for name in dict.fromkeys(split) if name not in _SPLIT_BY_ROWS]
    if names:
        actual = f"{dim} with tensor parallelism {tensor}, on {', '.join(names)}"
        allowed_values = f"a multiple of {tensor}, e.g. {-(-dim // tensor) * tensor}"
        fix = say("Set {peft.dim} to a multiple of {model.tensor_model_parallel_size}.")
        yield wrong("peft.dim", actual, allowed_values, fix=fix)


def _is_of_expert(linear: Linear) -> bool:
    return linear.part == "experts" and ".shared_experts." not in linear.path and linear.name.startswith("linear_fc")
