"""Reads of a run's adapters and of the layers of its model, which several rules share."""

import re
from collections.abc import Mapping
from typing import Any

from bridgepack.host.modules import DEFAULT_TARGETS, Architecture, Linear, architecture_of, is_match, pattern_of
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.subject import Run

#: Where the targets are.
TARGETS = "peft.target_modules"


def has_adapters(run: Run) -> bool:
    """Return whether low-rank adapters are trained, of a class that is known here."""
    return run.value("peft") is not None and adapter_of(run) in DEFAULT_TARGETS


def adapter_of(run: Run) -> str:
    """Return the class of the adapters, e.g. `LoRA`."""
    return run.class_name("peft") or ""


def has_targets(run: Run) -> bool:
    """Return whether adapters are trained and list their targets; without a list every linear layer is one."""
    return has_adapters(run) and bool(run.items(TARGETS))


def architecture(run: Run) -> Architecture:
    """Return what the model's layers are made of; raises `CannotJudgeError` for classes that are not covered."""
    actual = architecture_of(run.mapping("model"), run.versions.release)
    if actual is None:
        raise CannotJudgeError(f"the linear layers of {run.class_name('model')} are not known here")
    return actual


def targets_of(run: Run) -> tuple[str, ...]:
    """Return the targets."""
    return tuple(map(str, run.items(TARGETS)))


def is_default(run: Run) -> bool:
    """Return whether nobody has chosen the targets: they are those of the adapter's class, and no recipe names them."""
    is_written = TARGETS in run.config.user_paths
    return not is_written and targets_of(run) == DEFAULT_TARGETS[adapter_of(run)]


def trained_linears(run: Run) -> tuple[Linear, ...]:
    """Return the linear layers that get an adapter."""
    patterns = [pattern_of(target, adapter_of(run)) for target in targets_of(run)]
    try:
        return tuple(
            linear for linear in architecture(run).linears if any(is_match(pattern, linear) for pattern in patterns)
        )
    except re.error as error:
        raise CannotJudgeError(
            say("{path} has a text that is no pattern: {error}", path=setting(TARGETS), error=error)
        ) from error


def model_settings(run: Run) -> Mapping[str, Any]:
    """Return the settings of the model, none of them if they are not known."""
    try:
        return run.mapping("model")
    except CannotJudgeError:
        return {}


def is_split(run: Run) -> bool:
    """Return whether tensor-parallel ranks share layers."""
    return run.tensor_model_parallel_size > 1


def usual_targets(run: Run) -> list[str]:
    """Return the targets that follow the model's layers."""
    return list(architecture(run).targets(adapter_of(run), is_split=is_split(run)))
