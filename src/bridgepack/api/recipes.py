"""API functions on recipes: load, list, show and resolve them, write a new one."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.api.targets import Recipe, overridden
from bridgepack.bridge.refusing.refusals import refusal_text, refusals_of
from bridgepack.bridge.shipped import shipped_recipes
from bridgepack.bridge.targets import Target, saying_places
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.config.layouts.detect import Detection
from bridgepack.config.load import CatalogueEntry, catalogue
from bridgepack.config.load import load_recipe as load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import Wish, write_new
from bridgepack.config.write import cluster_schema, recipe_to_toml, recipe_to_yaml, schema_text, written_values
from bridgepack.planning.detecting import detect_data_or_files, detect_sets, require_data
from bridgepack.planning.fitting import Fit, fitted_batch, why_not_here
from bridgepack.planning.folders import entries_of
from bridgepack.planning.plan import new_recipe as text_of_new
from bridgepack.planning.plan import with_splits
from bridgepack.planning.resolved import ResolvedView, resolved_view
from bridgepack.records.results import Result
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeListing(Result):
    """The recipes of the catalogue.

    Attributes:
        entries: one per recipe; one that cannot be loaded says why in `error`.
        bridge: names of Megatron-Bridge's own recipes; empty if they were not asked for.
    """

    entries: tuple[CatalogueEntry, ...]
    bridge: tuple[str, ...] = ()

    def headline(self) -> str:
        """Return what came out, in one line."""
        return count_text(len(self.entries) + len(self.bridge), "recipe")

    def to_dict(self) -> dict[str, Any]:
        """Return the listing as plain values, for JSON."""
        return {"recipes": self.table(), **({"bridge": list(self.bridge)} if self.bridge else {})}

    def table(self) -> list[dict[str, Any]]:
        """Return the recipes of the catalogue."""
        return [entry.to_dict() for entry in self.entries]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeView(Result):
    """A recipe, and what Megatron-Bridge refuses of it.

    Attributes:
        recipe: the recipe with its overrides.
        refusals: one sentence or two for each thing that `to_bridge` refuses.
    """

    recipe: SFTRecipe
    refusals: tuple[str, ...]

    def headline(self) -> str:
        """Return what came out, in one line."""
        refusal_note = f"; Megatron-Bridge refuses it: {len(self.refusals)}" if self.refusals else ""
        return f"{self.recipe.name}{refusal_note}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the recipe states, as plain values."""
        return written_values(self.recipe)

    def to_yaml(self) -> str:
        """Return the text of a YAML file of the recipe."""
        return recipe_to_yaml(self.recipe)

    def to_toml(self) -> str:
        """Return the text of a TOML file of the recipe."""
        return recipe_to_toml(self.recipe)

    def table(self) -> list[dict[str, Any]]:
        """Return the refusals."""
        return [{"refusal": refusal} for refusal in self.refusals]


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRecipe:
    """The text of a new recipe file, which `write` writes.

    Attributes:
        name: name of the recipe.
        text: content of the file.
        fit: how the batch was fitted to the data, or why it was not.
        detection: layout of the data; None if it is not known, or its files have several.
        parts: file or folder -> layout of its rows, if the data's files have several.
        command: the command line that says every choice, those that were made by default, too.
    """

    name: str
    text: str
    fit: Fit
    detection: Detection | None
    parts: Mapping[str, Detection]
    command: str

    def write(self, output: str | Path | None = None) -> Path:
        """Write the file, by default `NAME.yaml`, and return its path; an existing file is never overwritten.

        Raises:
            ConfigError: the path is not a YAML file, exists, or cannot be written.
        """
        return write_new(Path(f"{self.name}.yaml") if output is None else local_path(output, "output"), self.text)


@check_arguments
def list_recipes(*, family: str | None = None, bridge: bool = False) -> RecipeListing:
    """Return the recipes of ./recipes, then those that come with bridgepack.

    Example: `bridgepack.list_recipes(family="qwen3").to_pandas()`.

    Args:
        family: only recipes of this family.
        bridge: also list Megatron-Bridge's own recipes, which imports it.

    Raises:
        ConfigError: no such family, or Megatron-Bridge is not installed.
    """
    return RecipeListing(entries=catalogue(family=family), bridge=tuple(shipped_recipes()) if bridge else ())


@check_arguments
@saying_places
def show_recipe(recipe: Recipe | Target, *, overrides: Mapping[str, Any] | None = None) -> RecipeView:
    """Return a recipe with its overrides, and what Megatron-Bridge refuses of it.

    Example: `print(bridgepack.show_recipe("recipes/mine.yaml").to_yaml())`.

    Args:
        recipe: an SFTRecipe, its fields, its location or a loaded target, as for `build`.
        overrides: dotted path -> value.

    Raises:
        ConfigError: it cannot be loaded.
    """
    sft_recipe = overridden(recipe, overrides)
    return RecipeView(recipe=sft_recipe, refusals=tuple(map(refusal_text, refusals_of(sft_recipe))))


@check_arguments
@saying_places
def resolve_recipe(
    recipe: Recipe | Target,
    *,
    overrides: Mapping[str, Any] | None = None,
    artifact: str | Path | None = None,
    trust_remote_code: bool = False,
) -> ResolvedView:
    """Return every value of a recipe, what follows from them, and where each comes from.

    Example: `bridgepack.resolve_recipe("recipes/mine.yaml").derived["data_parallel_size"]`.

    Args:
        recipe: an SFTRecipe, its fields, its location or a loaded target, as for `build`.
        overrides: dotted path -> value.
        artifact: packs to compute the training steps from (default: the recipe's, else a forecast).
        trust_remote_code: run Python code that comes with the tokenizer, if the recipe names such a one.

    Raises:
        ConfigError: it cannot be loaded, or its values contradict each other.
        ArtifactError: the packs cannot be read.
    """
    folder = None if artifact is None else local_path(artifact, "artifact")
    return resolved_view(overridden(recipe, overrides), artifact=folder, is_trusted=trust_remote_code)


@check_arguments
def new_recipe(
    name: str,
    *,
    model: str,
    num_gpus: int,
    seq_length: int,
    method: str | None = None,
    data: str | None = None,
    validation: Mapping[str, str] | None = None,
    layout: str | None = None,
    tokenizer: str | None = None,
    before_tokenizer: Callable[[], None] | None = None,
) -> NewRecipe:
    """Return a commented recipe to start from; the result's `write` writes it.

    Example: `bridgepack.new_recipe("mine", model="Qwen/Qwen3-8B", num_gpus=8, seq_length=4096).write()`.

    Args:
        name: name of the recipe.
        model: hub id, folder, or a recipe of Megatron-Bridge or the catalogue.
        num_gpus: GPUs of the run.
        seq_length: runtime tokens per pack.
        method: `full`, `lora` or `dora` (default: as the model's name says, else `full`).
        data: training data: a file, a folder, a pattern or a URL (default: `data/chats.jsonl`, which may come later).
            The layout of rows that are here is detected, and the batch fitted to them.
        validation: name -> data of each validation set, e.g. `{"code": "data/code.jsonl"}` (default: part of `data`).
        layout: name of the layout of the rows; `none` writes none.
        tokenizer: hub id or folder (default: the model's).
        before_tokenizer: called before a tokenizer is loaded.

    Raises:
        ConfigError: the model, the layout or a number does not fit.
        DataError: data are not here and no URL; or a saved DatasetDict does not have one training split.
    """
    fits: dict[str, Fit] = {}  # name of the tokenizer -> how the batch was fitted with it

    def fit(recipe: SFTRecipe) -> Fit:
        if before_tokenizer is not None and not why_not_here(recipe):
            before_tokenizer()
        return fits.setdefault(recipe.tokenizer.name_or_path, fitted_batch(recipe))

    wish: dict[str, Any] = {"name": name, "model": model, "num_gpus": num_gpus, "seq_length": seq_length}
    wish |= {"method": method, "tokenizer": tokenizer, **({} if data is None else {"data": data})}
    final = _with_layouts(Wish(**wish), validation or {}, layout, is_here=data is not None)
    text = text_of_new(final, catalogue(), fit)
    (model_tokenizer, batch), *_ = fits.items()
    command = _command(final, data=data, layout=layout, tokenizer=tokenizer or model_tokenizer)
    return NewRecipe(name=name, text=text, fit=batch, detection=final.detection, parts=final.layouts, command=command)


def _with_layouts(wish: Wish, validation: Mapping[str, str], layout: str | None, *, is_here: bool) -> Wish:
    """Return a wish with the layouts of its data and validation sets; `is_here`: the training data has to be here."""
    data = with_splits(wish)[0].data
    if is_here:
        require_data(data)
    detection, parts = detect_data_or_files(data, layout)
    sets = detect_sets(validation, [*filter(None, (detection,)), *parts.values()], layout)
    return replace(wish, detection=detection, parts=parts, sets=sets)


def _command(wish: Wish, *, data: str | None, layout: str | None, tokenizer: str) -> str:
    """Return the command line that says every choice of a new recipe; data that may come later is not named."""
    choices = {
        "model": wish.model,
        "num-gpus": wish.num_gpus,
        "seq-length": wish.seq_length,
        "method": wish.kind,
        "data": data,
        "layout": layout or (None if wish.detection is None or wish.detection.more else wish.detection.entry.name),
        "tokenizer": tokenizer,
    }
    options = [word for option, value in choices.items() if value is not None for word in (f"--{option}", str(value))]
    options += [word for name, (path, _) in wish.sets.items() for word in ("--validation", f"{name}={path}")]
    return shlex.join(["bridgepack", "new", wish.name, *options])


def recipes_like(model: str) -> Sequence[SFTRecipe]:
    """Return the catalogue's recipes for a model, as `new_recipe` takes it."""
    return [entry.recipe for entry in entries_of(catalogue(), model) if entry.recipe]


def recipe_schema(*, cluster: bool = False) -> str:
    """Return the JSON Schema of recipe files, as text; with `cluster`, that of cluster files.

    Example: `json.loads(bridgepack.recipe_schema())["properties"]`.
    """
    return schema_text(cluster_schema() if cluster else None)
