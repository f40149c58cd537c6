"""The base configs of recipes, as plain values of the host's release that a recipe is for; the host is not imported."""

from pathlib import Path
from typing import Any

from bridgepack.bridge.shipped import LISTED, is_shipped_model, shipped_name
from bridgepack.config.errors import did_you_mean, quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import AdapterMethod
from bridgepack.host import RELEASES, HostRelease
from bridgepack.host.names import move_to_canonical_names

#: Loader settings, which are kept from the base.
LOADER_FIELDS = ("num_workers", "pin_memory", "persistent_workers")
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
    """Return the base config of a recipe under canonical names, without `model` if the recipe's model is not known.

    The base is a shipped recipe's config, or the host's common config with a model of the hub.
    """
    return move_to_canonical_names(_base_of(recipe), recipe.release)[0]


def _base_of(recipe: SFTRecipe) -> dict[str, Any]:
    """Return the base under the release's names; it is the caller's own copy."""
    facts, model = recipe.release.facts, recipe.model
    if model is not None and is_shipped_model(model):
        base = facts.shipped_recipe(shipped_name(model.name))
        if base is not None:
            return base
    values = facts.common("adapter" if isinstance(recipe.method, AdapterMethod) else "full")
    is_id = model is not None and not Path(model.name).is_dir()  # transformers reads a folder first
    model_values = facts.model_by_name(model.name) if model is not None and is_id else None
    if model_values is None:
        del values["model"]
        return values
    return {**values, "model": model_values}


def why_model_unknown(recipe: SFTRecipe) -> str:
    """Return why a base has no model, and what to do."""
    model = recipe.model
    advice = "name a recipe of Megatron-Bridge in model.name, or check the ConfigContainer"
    if model is None:
        return f"model is missing; {advice}"
    if not is_shipped_model(model):
        return f"the settings of the model {model.name} are not known here; {advice}"
    return f"model.name is {quote(model.name)}, whose settings are not known here; {advice}"


def hint_for_no_recipe(recipe: SFTRecipe) -> str | None:
    """Return a hint for a name that is not a recipe of the host, or None if the name may be valid.

    Valid are recipes of the host, ids of the hub and folders.
    """
    model, facts = recipe.model, recipe.release.facts
    if model is None or not is_shipped_model(model):
        return None
    names = {*facts.recipes, *facts.aliases, *facts.refused_recipes}
    if shipped_name(model.name) in names:
        return None
    return did_you_mean(shipped_name(model.name), sorted(names), LISTED)


def why_not_made(recipe: SFTRecipe) -> str | None:
    """Return why the host refuses by design to make a recipe that it ships, or None."""
    if recipe.model is None or not is_shipped_model(recipe.model):
        return None
    name, facts = shipped_name(recipe.model.name), recipe.release.facts
    return facts.refused_recipes.get(facts.aliases.get(name, name))


def new_section(release: HostRelease, name: str) -> dict[str, Any]:
    """Return a new section that the base does not have, for an override in it."""
    fields = {REQUIRED_FIELD[name]: None} if name in REQUIRED_FIELD else {}
    return release.facts.new_object(_CLASS_OF_SECTION[name], **fields) if name in _CLASS_OF_SECTION else {}


def is_left_out(release: HostRelease, path: str) -> bool:
    """Return whether the host may have a field that the file does not name: a model's own config, or an alias."""
    section, _, name = path.partition(".")
    return path == "dist.lazy_init" or (section == "model" and name in {*release.facts.left_out, "mamba_stack_spec"})


def all_sections() -> list[str]:
    """Return the sections of a ConfigContainer, of every release."""
    return sorted({name for release in RELEASES for name in release.facts.sections})
