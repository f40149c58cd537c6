"""Rules on TransformerEngine's environment variables, of the recipe, the config or the cluster file."""

from bridgepack.host.variables import (
    ATTENTION_VARIABLES,
    ENGINE_DETERMINISM,
    FLASH_VERSIONS,
    OF_BACKEND,
    QUERY_SCALING,
    backends_with,
)
from bridgepack.records.messages import say
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ERROR, EXECUTED, Found, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.kernels.attention import has_flash_attention_3
from bridgepack.rules.run.reading import (
    attention_backend,
    backend_takes_effect,
    pads_between_sequences,
    uses_engine_attention,
    variable,
)

_BACKEND = "model.attention_backend"
_CURRENT = {BRIDGE: ">=0.6"}


@rule("BP734", ERROR, versions=_CURRENT, noticed="when the model is built", evidence=EXECUTED)
def attention_variable_against_backend(run: Run) -> Found:
    """NVTE_FLASH_ATTN, NVTE_FUSED_ATTN or NVTE_UNFUSED_ATTN contradicts the attention backend, or leaves none.

    Why: Crash when the model is built: Megatron-Core sets the variables itself, from the backend, and raises
        AssertionError. Where the backend is null, as in half of the shipped recipes, they act: without the fused
        kernel, padded packs have none at the first step, unless FlashAttention 3 is installed.
    Bad: environment NVTE_FUSED_ATTN 0, model.attention_backend auto. Good: attention_backend flash, no variable.
    Fix: Set {model.attention_backend}, and remove the variable.
    Source: core/models/common/language_module/language_module.py:108
    """
    variables = {name: value for name in ATTENTION_VARIABLES if (value := variable(run, name)) is not None}
    versions = {version: value for version, name in FLASH_VERSIONS.items() if (value := variable(run, name))}
    if not variables and not versions:
        return
    backend = attention_backend(run)
    if backend is None:
        yield from _left_to_variables(run, variables)
    elif backend in OF_BACKEND and backend_takes_effect(run):
        backends = backends_with(variables)
        cure = (
            say("Set {model.attention_backend} to {backend}, and remove the variable.", backend=backends[0])
            if backends
            else ""
        )
        for name, value in variables.items():
            value_of_backend = OF_BACKEND[backend][name]
            if value != value_of_backend:
                actual = say("{value}, and {model.attention_backend} is {backend}", value=value, backend=backend)
                yield wrong(
                    f"env_vars.{name}",
                    actual,
                    f"{value_of_backend}, or not set",
                    group=name,
                    fix=cure or "Remove the variables.",
                )
    yield from _versions(run, versions)


def _left_to_variables(run: Run, variables: dict[str, str]) -> Found:
    fused_variable = "NVTE_FUSED_ATTN"
    if [variables.get(name) for name in ATTENTION_VARIABLES] == ["0"] * 3 and uses_engine_attention(run):
        fix = say("Set {model.attention_backend} to fused, and remove the variables.")
        actual = say("0, as the two others, and {model.attention_backend} is null: no kernel is left")
        yield wrong(f"env_vars.{fused_variable}", actual, "1, or not set", group=fused_variable, fix=fix)
        return
    if variables.get(fused_variable) != "0" or not (
        run.is_packed and uses_engine_attention(run) and pads_between_sequences(run)
    ):
        return
    if variables.get("NVTE_FLASH_ATTN") != "0" and has_flash_attention_3(run):
        return
    actual = say("0, {model.attention_backend} is null, and sequences are padded: no kernel is left")
    fix = say("Set {model.attention_backend} to fused, and remove the variables.")
    yield wrong(f"env_vars.{fused_variable}", actual, "1, or not set", group=fused_variable, fix=fix)


def _versions(run: Run, versions: dict[int, str]) -> Found:
    flash_version = run.stated_value("model.flash_attention_version")
    for version, value in versions.items() if flash_version is not None else ():
        if version != flash_version and value != "0":
            actual = say(
                "{value}, and {model.flash_attention_version} is {version}", value=value, version=flash_version
            )
            fix = say("Remove the variable, or change {model.flash_attention_version}.")
            yield wrong(f"env_vars.{FLASH_VERSIONS[version]}", actual, "0, or not set", group=str(version), fix=fix)


@rule("BP735", ERROR, versions=_CURRENT, noticed="when the model is built", evidence="read in the source")
def engine_variable_against_setting(run: Run) -> Found:
    """A variable of TransformerEngine contradicts the setting that the host compares it with.

    Why: Crash when the model is built: the host wants both to say the same.
    Bad: NVTE_ALLOW_NONDETERMINISTIC_ALGO 1, model.deterministic_mode true. Good: the variable 0.
    Fix: Change the variable or the setting.
    Source: core/extensions/transformer_engine.py:1808,1884
    """
    scaling = variable(run, QUERY_SCALING)
    scales = run.is_on("model.apply_query_key_layer_scaling")
    if scaling is not None and _number(scaling) != int(scales):
        is_on = str(scales).lower()
        actual = say("{value}, and {model.apply_query_key_layer_scaling} is {is_on}", value=scaling, is_on=is_on)
        yield wrong(f"env_vars.{QUERY_SCALING}", actual, str(int(scales)), group="scaling")
    algorithm = variable(run, ENGINE_DETERMINISM)
    if algorithm is not None and run.is_on("model.deterministic_mode") and _number(algorithm) != 0:
        actual = say("{value}, and {model.deterministic_mode} is true", value=algorithm)
        yield wrong(f"env_vars.{ENGINE_DETERMINISM}", actual, "0", group="algorithm")


def _number(text: str) -> int | None:
    """Return 0 or 1 as the host reads a switch, or None for a text that is no whole number."""
    try:
        return int(bool(int(text)))
    except ValueError:
        return None
