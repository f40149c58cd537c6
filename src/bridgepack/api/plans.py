"""API functions that say what a recipe would do before anything is built."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.api.targets import Recipe
from bridgepack.bridge.targets import saying_places
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import refuse_taken, write_new
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.reading.kept_rows import recipe_with_rows
from bridgepack.data.store.store import store_folder
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.errors import ConfigError
from bridgepack.planning.calibration import fit_speed
from bridgepack.planning.layout import DEFAULT_GPU, gpu_by_name
from bridgepack.planning.lengths import lengths_of
from bridgepack.planning.plan import SIZES, Plan, plan_recipe, shape_to_plan
from bridgepack.planning.preview import Preview, preview_recipe


@check_arguments
@saying_places
def preview(
    recipe: Recipe,
    *,
    num_rows: int = 5,
    overrides: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Preview:
    """Return what a build would do with a recipe's data, based on a sample of its rows.

    Writes nothing, but keeps rows given in memory in the token store, as `build` does.

    Example: `bridgepack.preview("recipes/mine.yaml").sources[0].tokens`.

    Args:
        recipe: an SFTRecipe, its fields or its location, as for `build`.
        num_rows: maximum sequences per source to return with their text.
        overrides: dotted path -> value.
        trust_remote_code: run Python code that comes with the tokenizer, if the recipe names such a one.

    Raises:
        BridgepackError: ConfigError, TokenizerError or DataError, each saying what to do.
    """
    sft_recipe = recipe_with_rows(recipe, overrides)
    refuse_tokenizer_code(sft_recipe, is_trusted=trust_remote_code)
    return preview_recipe(sft_recipe, num_rows=num_rows)


@check_arguments
@saying_places
def plan(
    recipe: Recipe,
    *,
    num_gpus: int,
    gpu: str = DEFAULT_GPU,
    model: str | None = None,
    artifact: str | Path | None = None,
    store: str | Path | None = None,
    calibrate: str | Path | None = None,
    dynamic_context: bool = False,
    output: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Plan:
    """Return valid pack sizes and topologies for a recipe on a number of GPUs, the fastest estimate first.

    Example: `bridgepack.plan("recipes/mine.yaml", num_gpus=64).best_recipe`.

    Args:
        recipe: an SFTRecipe, its fields or its location, as for `build`.
        num_gpus: number of GPUs.
        gpu: GPU type, e.g. `h100-80gb`.
        model: a model to plan for instead of the recipe's.
        artifact: packs to take sequence lengths from; by default a sample of the recipe's data is tokenised.
        store: token store with the recipe's rows, to take all sequence lengths from.
        calibrate: training log of this recipe; its step times calibrate the estimate.
        dynamic_context: also ask the installed megatron-core how dynamic context parallelism would pack at run time.
        output: new recipe file for the best candidate (default: none is written).
        overrides: dotted path -> value.
        trust_remote_code: run Python code that comes with the tokenizer, if the recipe names such a one.

    Raises:
        BridgepackError: ConfigError, TokenizerError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    _refuse_contradictions(artifact, store, num_gpus)
    place = None if output is None else local_path(output, "output")
    if place is not None:
        refuse_taken(place, option="--output")
    tokens = None if store is None else store_folder(store)
    sft_recipe, machine = _recipe_to_plan(recipe, overrides, tokens, model), gpu_by_name(gpu)
    packs = None if artifact is None else local_path(artifact, "artifact")
    refuse_tokenizer_code(sft_recipe, is_trusted=trust_remote_code or packs is not None)
    lengths = lengths_of(sft_recipe, artifact=packs, store=tokens, sizes=SIZES)
    speed = None if calibrate is None else fit_speed(local_path(calibrate, "calibrate"), sft_recipe, lengths, machine)
    result = plan_recipe(
        sft_recipe, lengths, gpu=machine, num_gpus=num_gpus, speed=speed, has_dynamic_context=dynamic_context
    )
    if place is not None:
        write_new(place, recipe_to_yaml(result.best_recipe), option="--output")
    return result


def _recipe_to_plan(
    recipe: Recipe, overrides: Mapping[str, Any] | None, store: Path | None, model: str | None
) -> SFTRecipe:
    sft_recipe = recipe_with_rows(recipe, overrides, store=store if store is not None and store.is_dir() else None)
    sft_recipe = sft_recipe if model is None else sft_recipe.override({"model.name": model})
    shape_to_plan(sft_recipe)  # fails before rows are read
    return sft_recipe


def _refuse_contradictions(artifact: str | Path | None, store: str | Path | None, num_gpus: int) -> None:
    if artifact is not None and store is not None:
        raise ConfigError(
            f"artifact is {str(artifact)!r} and store is {str(store)!r}; allowed: only one, because each gives "
            "the lengths. Leave one out."
        )
    if num_gpus < 1:
        raise ConfigError(f"num_gpus is {num_gpus}; allowed: 1 or more. Raise it.")
