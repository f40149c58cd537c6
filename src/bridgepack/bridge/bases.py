"""The base configs of recipes, as plain values of megatron-bridge 0.6.2; the host is not imported.

`bases.json` has the usual values of every section once, and only the other values of each base. A contract test
compares it with the installed host, and can write it again.
"""

import copy
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bridgepack.bridge.shipped import LISTED, is_shipped_model, shipped_name
from bridgepack.config.errors import did_you_mean, shown
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import AdapterMethod, ModelConfig

#: Loader settings, which are kept from the base.
LOADER_FIELDS = ("num_workers", "pin_memory", "persistent_workers")
_FILE = Path(__file__).with_name("bases.json")
#: Section that a ConfigContainer can be without -> its class, for an override in it.
_CLASS_OF_SECTION = {
    "comm_overlap": "CommOverlapConfig",
    "ft": "FaultToleranceConfig",
    "inprocess_restart": "InProcessRestartConfig",
    "nvrx_straggler": "NVRxStragglerDetectionConfig",
    "profiling": "ProfilingConfig",
    "straggler": "StragglerDetectionConfig",
    "tensor_inspect": "TensorInspectConfig",
}

#: Section -> its field without a default, which the file's defaults leave out.
REQUIRED_FIELD = {"comm_overlap": "tp_comm_overlap"}


def base_of(recipe: SFTRecipe) -> dict[str, Any]:
    """Return the base config of a recipe, without `model` if the file does not have the recipe's model.

    The base is a shipped recipe's config, or the host's common config with a model of the hub.
    """
    file, model = _file(), recipe.model
    if model is not None and is_shipped_model(model):
        name = shipped_name(model.name)
        places = file["recipes"].get(file["aliases"].get(name, name))  # many also have a shorter name
        if places is not None:
            return _sections(places)
    values = _sections(file["common"]["adapter" if isinstance(recipe.method, AdapterMethod) else "full"])
    found = model_named(model.name) if model is not None else None
    if found is None:
        del values["model"]
        return values
    return {**values, "model": found}


def model_named(name: str) -> dict[str, Any] | None:
    """Return the settings of a model of the hub, or None if the file does not have it."""
    place = _file()["models"].get(name)
    return None if place is None else dict(_section("model", place))


def models_of_hub() -> list[str]:
    """Return the ids of the hub models in the file."""
    return list(_file()["models"])


def shipped_names() -> list[str]:
    """Return the names of the recipes in the file."""
    return list(_file()["recipes"])


def why_model_unknown(recipe: SFTRecipe) -> str:
    """Return why a base has no model, and what to do."""
    model = recipe.model
    advice = "name a recipe of Megatron-Bridge in model.name, or check the ConfigContainer"
    if model is None:
        return f"model is missing; {advice}"
    if not is_shipped_model(model):
        return f"the settings of the model {model.name} are not known here; {advice}"
    return f"model.name is {shown(model.name)}, whose settings are not known here; {advice}"


def hint_for_no_recipe(recipe: SFTRecipe) -> str | None:
    """Return a hint for a name that is not a recipe of the host, or None if the name may be valid.

    Valid are recipes of the host, ids of the hub and folders.
    """
    model, file = recipe.model, _file()
    if model is None or not is_shipped_model(model):
        return None
    known = {*file["recipes"], *file["aliases"], *file["not_made"]}
    if shipped_name(model.name) in known:
        return None
    return did_you_mean(shipped_name(model.name), sorted(known), LISTED)


def why_not_made(model: ModelConfig) -> str | None:
    """Return why the host refuses by design to make a recipe that it ships, or None."""
    if not is_shipped_model(model):
        return None
    name, file = shipped_name(model.name), _file()
    reasons: dict[str, str] = file["not_made"]
    return reasons.get(file["aliases"].get(name, name))


def made(name: str, **values: Any) -> dict[str, Any]:
    """Return a new object of a host class, named without its module, with its defaults and the given values."""
    defaults = next(fields for target, fields in _file()["classes"].items() if target.endswith(f".{name}"))
    return {**copy.deepcopy(defaults), **values}


def as_held(path: str, value: Any) -> Any:
    """Return a value as the host stores it: an object with its class defaults, an enum's member for its name."""
    kind = _file()["enums"].get(path)
    if kind is not None and isinstance(value, str):
        return {"_target_": kind, "_name_": value}
    name = value.get("_target_") if isinstance(value, Mapping) else None
    return {**copy.deepcopy(_file()["classes"].get(name, {})), **value} if name else value


def new_section(name: str) -> dict[str, Any]:
    """Return a new section that the base does not have, for an override in it."""
    required = {REQUIRED_FIELD[name]: None} if name in REQUIRED_FIELD else {}
    return made(_CLASS_OF_SECTION[name], **required) if name in _CLASS_OF_SECTION else {}


def precision_named(name: str) -> dict[str, Any]:
    """Return the host's registered mixed precision for a name in the recipe."""
    precision: dict[str, Any] = _file()["precisions"][name]
    return precision


def is_left_out(path: str) -> bool:
    """Return whether the host may have a field that the file does not name: a model's own config, or an alias."""
    section, _, name = path.partition(".")
    return path == "dist.lazy_init" or (section == "model" and name in {*_file()["left_out"], "mamba_stack_spec"})


def all_sections() -> list[str]:
    """Return the sections of a ConfigContainer."""
    return list(_file()["sections"])


@cache
def _file() -> Any:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def _sections(places: list[int | None]) -> dict[str, Any]:
    return {name: _section(name, place) for name, place in zip(_file()["sections"], places, strict=True)}


def _section(name: str, place: int | None) -> Any:
    """Return a section by its index; in the file `=` is its whole value, `-` lists fields to remove."""
    if place is None:
        return None
    stated = copy.deepcopy(_file()["others"][name][place])
    if "=" in stated:
        return stated["="]
    absent = stated.pop("-", [])
    usual = {field: value for field, value in _file()["usual"][name].items() if field not in absent}
    return {**copy.deepcopy(usual), **stated}
