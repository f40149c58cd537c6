"""Rules on determinism, number formats and the precision of the optimizer's state."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.host.variables import DETERMINISTIC_ALGORITHMS, DETERMINISTIC_VARIABLES, OFFLOADING_VARIABLES
from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, WARNING, Found, fixable_rule, rule, set_to, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.reading import variable

_PRECISION = "mixed_precision"
_VARIABLES = "env_vars"


def quantisation(run: Run) -> str | None:
    """Return what matrix products are quantised to after the host has applied `mixed_precision`, or None.

    `fp8`, `mxfp8`, `fp4` or `nvfp4`; the precision's own fields write over those of the model.
    """
    precision = run.stated_value(_PRECISION)
    if isinstance(precision, str):
        name = precision.replace("-", "_")
        return next((kind for kind in ("mxfp8", "nvfp4", "fp8", "fp4") if kind in name), None)
    holder = _PRECISION if isinstance(precision, Mapping) else "model"
    if run.stated_value(f"{holder}.fp4"):
        return "nvfp4" if run.stated_value(f"{holder}.fp4_recipe") == "nvfp4" else "fp4"
    if run.stated_value(f"{holder}.fp8"):
        return "mxfp8" if run.stated_value(f"{holder}.fp8_recipe") == "mxfp8" else "fp8"
    return None


def scales_with_delay(run: Run) -> bool:
    """Return whether FP8 scales by the maxima of earlier steps, after the host has applied `mixed_precision`."""
    precision = run.stated_value(_PRECISION)
    if isinstance(precision, str):
        return "delayed" in precision
    holder = _PRECISION if isinstance(precision, Mapping) else "model"
    return bool(run.stated_value(f"{holder}.fp8")) and run.stated_value(f"{holder}.fp8_recipe") == "delayed"


@fixable_rule("BP877", ERROR, "bridge/training/config.py:1043-1063", noticed=VALIDATE, evidence=EXECUTED)
def deterministic_mode_contradicted(run: Run) -> Found:
    """deterministic_mode is on with a fused cross entropy, or with an NCCL algorithm that is not deterministic.

    Bad: deterministic_mode true, cross_entropy_loss_fusion true. Good: cross_entropy_loss_fusion false.
    Fix: Set {model.cross_entropy_loss_fusion} to false, and {env_vars.NCCL_ALGO} to Ring or Tree.
    """
    fusion, algorithm = "model.cross_entropy_loss_fusion", variable(run, "NCCL_ALGO")
    if not run.is_on("model.deterministic_mode"):
        return
    if run.is_on(fusion):
        yield wrong(fusion, "true with deterministic_mode true", "false", to=False, because="it is not deterministic")
    if algorithm is not None and algorithm not in DETERMINISTIC_ALGORITHMS:
        fix = say("Set {env_vars.NCCL_ALGO} to Ring or Tree.")
        yield wrong(f"{_VARIABLES}.NCCL_ALGO", repr(algorithm), ", ".join(DETERMINISTIC_ALGORITHMS), to="Ring", fix=fix)


@rule("BP878", WARNING, "bridge/training/config.py:1058,2055; core/extensions/transformer_engine.py:1884-1891")
def variable_left_to_the_job(run: Run) -> Found:
    """A setting needs an environment variable that the settings do not give, so the job must.

    Why: Crash at start, or when the model is built, unless the job's own script exports it.
    Bad: deterministic_mode true, no NCCL_ALGO in env_vars. Good: env_vars {NCCL_ALGO: Ring}.
    Fix: Set {env_vars.NCCL_ALGO} to Ring and {env_vars.NVTE_ALLOW_NONDETERMINISTIC_ALGO} to 0 with
        {model.deterministic_mode}, {env_vars.NVTE_CPU_OFFLOAD_V1} to 1 with {model.fine_grained_activation_offloading}.
    Noticed: validate(), or model build.
    """
    requirements = {
        "model.deterministic_mode": DETERMINISTIC_VARIABLES,
        "model.fine_grained_activation_offloading": OFFLOADING_VARIABLES,
    }
    for path, values in requirements.items():
        for name in values if run.is_on(path) else ():
            if variable(run, name) is None:
                actual = f"not set, with {path.rpartition('.')[2]} true"
                yield wrong(f"{_VARIABLES}.{name}", actual, values[name], group=name)


@fixable_rule("BP881", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def optimizer_state_narrowed_without_what_it_needs(run: Run) -> Found:
    """The optimizer's state has narrow types, but use_precision_aware_optimizer or what it needs is off.

    Bad: use_precision_aware_optimizer false, main_grads_dtype bfloat16. Good: main_grads_dtype float32.
    Fix: Set {optimizer.use_precision_aware_optimizer} to true with adam and {optimizer.use_distributed_optimizer} true,
        or set {optimizer.main_grads_dtype}, {optimizer.main_params_dtype}, {optimizer.exp_avg_dtype} and
        {optimizer.exp_avg_sq_dtype} to float32.
    Source: core/optimizer/optimizer_config.py:424-481; bridge/training/config.py:2005-2023
    """
    aware, step = "optimizer.use_precision_aware_optimizer", "optimizer.overlap_param_gather_with_optimizer_step"
    if run.is_on(aware):
        if run.text_or_none("optimizer.optimizer") not in (None, "adam"):
            actual = f"true with {run.value('optimizer.optimizer')}"
            yield wrong(aware, actual, "false", to=False, fix=set_to(aware, "false"))
        if not run.is_on("optimizer.use_distributed_optimizer"):
            actual = say("true without {optimizer.use_distributed_optimizer}")
            yield wrong(aware, actual, "false", to=False, fix=set_to(aware, "false"))
        return
    for path, kind in _types(run):
        if kind != "float32":
            yield wrong(path, f"{kind} without use_precision_aware_optimizer", "float32", group=path)
    if run.is_on("optimizer.reuse_grad_buf_for_mxfp8_param_ag") and run.is_on(step):
        yield wrong(step, "true with reuse_grad_buf_for_mxfp8_param_ag true", "false", to=False)


def _types(run: Run) -> Iterator[tuple[str, str]]:
    for name in ("main_grads", "main_params", "exp_avg", "exp_avg_sq"):
        value: Any = run.stated_value(f"optimizer.{name}_dtype")
        if value is not None:
            text = value.get("_target_") if isinstance(value, Mapping) else value
            yield f"optimizer.{name}_dtype", str(text).rpartition(".")[2]


@fixable_rule(
    "BP889",
    ERROR,
    "core/transformer/transformer_config.py:1311,1448-1462",
    noticed=VALIDATE,
    evidence=EXECUTED,
)
def number_formats_contradicted(run: Run) -> Found:
    """An option of FP8 or FP4 is on without that format, or two formats exclude each other.

    Bad: fp8_output_proj true, mixed_precision bf16_mixed. Good: fp8_output_proj false.
    Fix: Name the format in mixed_precision, which writes over the model's own fields, and remove the option.
    """
    kind, option = quantisation(run), "model.fp8_output_proj"
    if run.is_on(option) and kind != "mxfp8":
        yield wrong(option, f"true with {kind or 'neither FP8 nor FP4'}", "false, or mxfp8", to=False)
    holder = _PRECISION if isinstance(run.stated_value(_PRECISION), Mapping) else "model"
    if isinstance(run.stated_value(_PRECISION), str):
        return
    if run.is_on(f"{holder}.fp16") and run.is_on(f"{holder}.bf16"):
        yield wrong(f"{holder}.fp16", "true with bf16 true", "one of the two")
    if run.stated_value(f"{holder}.fp8") and run.stated_value(f"{holder}.fp4"):
        yield wrong(f"{holder}.fp4", "set with fp8", "one of the two")
    for name in ("fp8", "fp4"):
        if run.stated_value(f"{holder}.{name}_param") is True and not run.stated_value(f"{holder}.{name}"):
            yield wrong(f"{holder}.{name}_param", f"true without {name}", "false", to=False)
