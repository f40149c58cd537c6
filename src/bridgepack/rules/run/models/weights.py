"""The rule on settings that make another model than the one whose weights are loaded."""

from typing import Any

from bridgepack.host.model_fields import changed_fields
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.rule import ERROR, Found, rule, wrong
from bridgepack.rules.judging.subject import Run

_PRETRAINED = "checkpoint.pretrained_checkpoint"
_EVIDENCE = (
    "executed with the real 0.6.2 and main: tiny models of four kinds with equal weights, in single precision; layers "
    "of TransformerEngine are read"
)


def loads_weights(run: Run) -> bool:
    """Return whether a run starts from weights that were trained before."""
    return run.is_set(_PRETRAINED)


@rule("BP746", ERROR, when=loads_weights, noticed="loading of weights, or never", evidence=_EVIDENCE)
def another_model_than_that_of_the_weights(run: Run) -> Found:
    """The settings make another model than the one whose weights are loaded.

    Why: Silent where the weights load, as with another rotary base, epsilon of the norms, activation or routing: the
        model computes something else than it was trained for, and training hides that at the price of what it knew.
        Crash where they do not load, as with other numbers of layers, heads or widths.
    Bad: rotary_base 10000 over weights of a model with 500000. Good: rotary_base 500000.
    Fix: Leave these settings as the weights have them. If the change is meant, ignore BP746 and say why.
    Source: core/models/gpt/gpt_model.py, core/models/hybrid/hybrid_model.py, core/transformer/transformer_config.py
    """
    base = run.slow_facts.require_base_model()
    model = run.mapping("model")
    for name, effect in changed_fields(model, base.settings, run.release):
        path, of_base = f"model.{name}", _text(base.settings[name])
        consequence = "the model computes something else" if effect == "function" else "the weights do not load"
        template = "Set {path} to {value}, as {base} has it, or ignore BP746 and say why."
        fix = say(template, path=setting(path), value=of_base, base=base.name)
        actual, of_weights = f"{_text(model[name])}, with which {consequence}", f"{of_base}, as {base.name} has it"
        yield wrong(path, actual, of_weights, fix=fix)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("_name_", value.get("_target_"))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
