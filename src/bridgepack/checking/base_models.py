"""Step 3 of a check, facts: the model whose weights a run starts from, as settings of the host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.bases import base_of
from bridgepack.bridge.container import flat_model
from bridgepack.bridge.model_folder import ModelFolder, read_model_folder
from bridgepack.bridge.shipped import is_shipped_model
from bridgepack.checking.tokenizers import models_of_weights
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host.names import in_canonical_names
from bridgepack.rules.judging.base_model import UNKNOWN_MODEL, BaseModel
from bridgepack.rules.judging.subject import Run

#: Models of the hub whose sizes in the release's facts were not compared with a published file.
_NOT_COMPARED = frozenset(
    {
        *("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "LGAI-EXAONE/EXAONE-4.5-33B", "zai-org/GLM-5.2"),
        *("LGAI-EXAONE/K-EXAONE-2.0-750B-A37B", "stepfun-ai/Step-3.7-Flash"),
    }
)


def base_model_of(run: Run, recipe: SFTRecipe | None, *, looks_at_files: bool) -> BaseModel | str:
    """Return the model of a run's weights: by their own config, else by the recipe's base; or why it is not known."""
    for folder in models_of_weights(run) if looks_at_files else ():
        if (model := _model_of_checkpoint(folder, run)) is not None:
            return model
    return _model_of_recipe(recipe, run) or _model_of_hub(run) or UNKNOWN_MODEL


def _model_of_checkpoint(folder: ModelFolder, run: Run) -> BaseModel | None:
    """Return the model that a checkpoint's config describes, if it has one."""
    section = folder.run_config.get("model")
    if isinstance(section, Mapping) and "hidden_size" in (settings := flat_model(section)):
        return BaseModel(name=f"the checkpoint {folder.path}", settings=_canonical(settings, run))
    if not (settings := folder.settings):
        return None
    return BaseModel(name=f"the model in {folder.path}", settings=settings, positions=folder.positions)


def _model_of_recipe(recipe: SFTRecipe | None, run: Run) -> BaseModel | None:
    if recipe is None or recipe.model is None:
        return None
    path = Path(recipe.model.name)
    if not is_shipped_model(recipe.model) and path.is_dir():
        return _model_of_checkpoint(read_model_folder(path), run)
    settings = base_of(recipe).get("model")
    return BaseModel(name=f"the base {recipe.model.name}", settings=settings) if settings else None


def _model_of_hub(run: Run) -> BaseModel | None:
    """Return the model of a saved config by its id on the hub, where it is of the class that the host makes of it."""
    name = run.stated_value("model.hf_model_id")
    if not isinstance(name, str) or name in _NOT_COMPARED:
        return None
    settings = run.versions.release.facts.model_by_name(name)
    if settings is None or settings.get("_target_") != run.stated_value("model._target_"):
        return None
    return BaseModel(name=f"the model {name}", settings=_canonical(settings, run))


def _canonical(settings: Mapping[str, Any], run: Run) -> Mapping[str, Any]:
    model: Mapping[str, Any] = in_canonical_names({"model": dict(settings)}, run.versions.release)[0]["model"]
    return model
