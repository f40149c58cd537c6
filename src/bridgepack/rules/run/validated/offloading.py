"""Rules on offloading activations to the memory of the host machine."""

from bridgepack.host.validated import OFFLOADED_IN_EXPERTS, OFFLOADED_MODULES
from bridgepack.host.variables import OFFLOADING_VARIABLES
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.reading import variable

_LAYERS, _FINE = "model.cpu_offloading", "model.fine_grained_activation_offloading"
_MODULES = "model.offload_modules"


@fixable_rule("BP879", ERROR, "core/transformer/transformer_config.py:1703-1722", noticed=VALIDATE, evidence=EXECUTED)
def layers_offloaded_where_they_cannot_be(run: Run) -> Found:
    """cpu_offloading is on with pipeline stages, with recomputation, or for a number of layers the model does not have.

    Bad: cpu_offloading true, pipeline_model_parallel_size 2. Good: cpu_offloading false.
    Fix: Set {model.cpu_offloading} to false, or use one pipeline stage, no recomputation, and
        {model.cpu_offloading_num_layers} below {model.num_layers}.
    """
    if not run.is_on(_LAYERS):
        return
    layers, number = run.integer_or_none("model.num_layers"), run.stated_integer("model.cpu_offloading_num_layers") or 0
    if number < 0 or (layers is not None and number >= layers):
        yield wrong("model.cpu_offloading_num_layers", str(number), f"0 to {(layers or 1) - 1}")
    if run.pipeline_model_parallel_size > 1:
        actual = f"true with {run.pipeline_model_parallel_size} pipeline stages"
        yield wrong(_LAYERS, actual, "false", to=False, because="stages cannot offload layers")
    if run.is_set("model.recompute_granularity"):
        actual = f"true with recompute_granularity {run.value('model.recompute_granularity')}"
        yield wrong(_LAYERS, actual, "false", to=False, because="recomputed activations are not kept")


@fixable_rule("BP880", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def activations_offloaded_without_what_that_needs(run: Run) -> Found:
    """fine_grained_activation_offloading is on with modules, sizes or settings that it does not support.

    Bad: fine_grained_activation_offloading true, offload_modules not set. Good: offload_modules [core_attn].
    Fix: Name what is offloaded in {model.offload_modules} (attn_proj only with core_attn), turn {model.cpu_offloading}
        off, and take {model.transformer_impl} transformer_engine.
    Source: core/transformer/transformer_config.py:1853-1906; bridge/training/config.py:2026-2060
    """
    if not run.is_on(_FINE):
        return
    if run.is_on(_LAYERS):
        yield wrong(_LAYERS, "true with fine_grained_activation_offloading true", "false", to=False)
    engine = run.text_or_none("model.transformer_impl")
    if engine != "transformer_engine":
        yield wrong("model.transformer_impl", str(engine), "transformer_engine", to="transformer_engine")
    yield from _wrong_modules(run)
    sizes = ("min_offloaded_tensor_size", "delta_offload_bytes_across_pp_ranks")
    for name, maximum in (*((size, None) for size in sizes), ("activation_offload_fraction", 1)):
        value = run.stated_value(f"model.{name}")
        if isinstance(value, (int, float)) and (value < 0 or (maximum is not None and value > maximum)):
            yield wrong(f"model.{name}", str(value), f"0 to {maximum}" if maximum else "0 or more")
    for name, value_needed in OFFLOADING_VARIABLES.items():
        if variable(run, name) not in (None, value_needed):
            yield wrong(f"env_vars.{name}", str(variable(run, name)), value_needed, to=value_needed)


def _wrong_modules(run: Run) -> Found:
    modules = list(map(str, run.items(_MODULES)))
    foreign_modules = [name for name in modules if name not in OFFLOADED_MODULES]
    in_experts = sorted(OFFLOADED_IN_EXPERTS & set(modules))
    if not modules or foreign_modules:
        yield wrong(
            _MODULES,
            repr(foreign_modules[0]) if foreign_modules else "empty",
            f"some of {', '.join(OFFLOADED_MODULES)}",
        )
    if "attn_proj" in modules and "core_attn" not in modules:
        yield wrong(_MODULES, "attn_proj without core_attn", "both")
    is_recomputed = run.stated_value("model.recompute_granularity") == "selective" and in_experts
    if is_recomputed and "moe" in run.items("model.recompute_modules"):
        yield wrong(_MODULES, f"{in_experts[0]} with moe in recompute_modules", "modules outside the experts")
    if "fused_group_mlp" in modules:
        if not run.is_on("model.use_transformer_engine_op_fuser"):
            yield wrong(_MODULES, "fused_group_mlp without use_transformer_engine_op_fuser", "other modules")
        for conflict in [name for name in in_experts if name != "fused_group_mlp"][:1]:
            yield wrong(_MODULES, f"fused_group_mlp with {conflict}", "fused_group_mlp alone in the experts")
