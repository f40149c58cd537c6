"""An override that the real megatron-bridge would ignore or write over in silence is refused; the others are kept."""

import copy
import enum
import os
import typing
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bridgepack.bridge.plain import field_names, holder_of, value_at
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.refusing.refusals import refusal_text, refusals_of
from bridgepack.bridge.writing.values import declared_types
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, quiet_host, recipe_of
from tests.support.gpu_host import pretend_gpu_host
from tests.support.refused_overrides import OVERRIDES

pytestmark = pytest.mark.bridge


@pytest.mark.parametrize(("overrides", "message"), OVERRIDES)
def test_override_that_would_be_ignored_is_refused(host: None, overrides: dict[str, Any], message: str) -> None:
    recipe = recipe_of(DENSE, bridge_overrides=overrides)
    with pytest.raises(ConfigError) as raised:
        to_bridge(recipe)

    model = "BridgeGPTModelConfig" if recipe.release.built_from_parts else "GPTModelProvider"
    assert message.replace("GPTModelProvider", model) in str(raised.value)
    assert str(raised.value) == refusal_text(refusals_of(recipe)[0])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.cp_com_type", "a2a"),
        ("ft.enable_ft_pakage", True),
        ("ft.enable_ft_package", True),
        ("mixed_precision.grad_reduce_in_fp33", True),
        ("mixed_precision.grad_reduce_in_fp32", True),
        ("rng.seed.low", 1),
        ("elsewhere", 1),
        ("checkpoint._target_", "mine.Config"),
        ("dist.lazy_init", True),
        ("dataset.dataset_kwargs.mine", 1),
        ("env_vars.MINE", "1"),
        ("peft.dim", 8),
        ("comm_overlap.tp_comm_overlap", True),
        ("comm_overlap.overlap_grad_reduce", True),
    ],
)
def test_a_check_finds_the_overrides_that_are_refused(host: None, path: str, value: Any) -> None:
    recipe = recipe_of(DENSE).override({f"bridge_overrides.{path}": value})
    lost = [one.path for one in config_of_recipe(recipe).refusals]

    assert lost in ([], [path])
    with pytest.raises(ConfigError) if lost else nullcontext():
        to_bridge(recipe)


def test_a_check_knows_every_field_of_the_host(host: None, tmp_path: Path) -> None:
    recipe = recipe_of(DENSE, method__kind="lora", checkpoint__pretrained=str(tmp_path))
    base = to_bridge(recipe)
    for section in SECTIONS:
        names = field_names(value_at(base, section))
        config = config_of_recipe(recipe.override({f"bridge_overrides.{section}.{name}": None for name in names}))
        assert (len(names) > 0, [one for one in config.refusals if one.kind == "nowhere"]) == (True, [])


SECTIONS = (
    *("model", "train", "validation", "optimizer", "ddp", "scheduler", "checkpoint", "logger", "tokenizer", "rng"),
    *("dist", "dataset", "dataset.offline_packing_specs", "peft", "rerun_state_machine", "profiling"),
)
#: The host writes them out in full: 2 means every second layer.
WRITTEN_OUT = {"model.no_rope_freq"}


@pytest.mark.full
def test_every_field_of_the_host_is_kept_or_refused(host: None, tmp_path: Path) -> None:
    recipe = recipe_of(DENSE, method__kind="lora", checkpoint__pretrained=str(tmp_path))
    base = to_bridge(recipe)
    outcomes: Counter[str] = Counter()
    ignored = []
    for section in SECTIONS:
        node = value_at(base, section)
        for name in sorted(field_names(node) | field_names(getattr(node, "transformer", node))):
            holder = holder_of(node, name)
            declared = declared_types(type(holder)).get(name, Any)
            path, value = f"{section}.{name}", _another(getattr(holder, name), declared)
            if value is not None:
                outcome = _outcome(recipe, path, value)
                outcomes[outcome] += 1
                ignored += [path] if outcome == "ignored" and path not in WRITTEN_OUT else []

    assert ignored == []
    assert outcomes["kept"] > 500
    assert outcomes["refused"] > 30


def _outcome(recipe: SFTRecipe, path: str, value: Any) -> str:
    """Return what becomes of an override when the host starts: kept, refused (by us or the host), or ignored."""
    from megatron.bridge.training.config import runtime_config_update

    with quiet_host(), pretend_gpu_host(), mock.patch.dict(os.environ, WORLD_SIZE="2"):
        try:
            config = to_bridge(recipe.override({f"bridge_overrides.{path}": value}))
        except ConfigError:
            return "refused"
        wanted = copy.deepcopy(value_at(config, path))
        try:
            runtime_config_update(config)
        except Exception:  # whatever it raises, it does not keep silent
            return "refused by the host"
    return "kept" if value_at(config, path) == wanted else "ignored"


def _another(value: Any, annotation: Any) -> Any:
    """Return a value of the same kind that is not the field's; None where none is known."""
    options = (annotation, *typing.get_args(annotation))
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            return next((one for one in typing.get_args(option) if one != value), None)
        if isinstance(option, type) and issubclass(option, enum.Enum):
            return next(member.name for member in option if member != value)
    if isinstance(value, bool):
        return not value
    changed = {int: lambda: value + 1, float: lambda: value / 2 + 0.001, str: lambda: f"{value}x"}
    if type(value) in changed:
        return changed[type(value)]()
    made = {bool: True, int: 2, float: 0.5, str: "text"}
    return next((made[option] for option in options if option in made), None) if value is None else None
