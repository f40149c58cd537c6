"""Loads the target of `bridgepack check`: a recipe, a ConfigContainer, a saved ConfigContainer, or an artifact."""

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bridgepack.bridge.container import changed, config_of_container, config_of_saved, is_container, is_saved_container
from bridgepack.bridge.import_on_cpu import install_import_hook
from bridgepack.bridge.recipe import config_of_recipe, inputs_of
from bridgepack.bridge.shipped import MODULE, PREFIX, SUFFIX
from bridgepack.config.load import catalogue_target, load_recipe
from bridgepack.config.reading import FORMS, RECIPE_SUFFIX, load_object, read_sections, written_in
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.remote import artifact_place, scheme_of
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig

_SETTINGS_SUFFIXES = frozenset({".yaml", ".yml", ".toml"})
_PACKED_SUFFIXES = (".parquet", ".pq", ".npy")
_FORMS = (
    f"a recipe ({FORMS}), a recipe of Megatron-Bridge (megatron.bridge.recipes.MODULE:FUNCTION or bridge:FUNCTION), "
    "a saved Megatron-Bridge config (FILE.yaml), or an artifact (a folder, a packed file, a pattern)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A loaded target of a check."""

    #: a bridgepack recipe, a live ConfigContainer, a saved ConfigContainer, or an artifact alone
    kind: Literal["recipe", "container", "saved", "artifact"]
    place: str
    config: RunConfig | None = None  #: the run's settings; None for an artifact alone
    recipe: SFTRecipe | None = None  #: the recipe; None for the other kinds
    artifact: Path | None = None  #: the artifact; None for the other kinds
    file: Path | None = None  #: the file that the settings come from, or None
    function: str | None = None  #: the function in a Python file, or None
    container: Any = None  #: the live ConfigContainer as it was loaded; None for the other kinds
    #: dotted path -> value, changed since in a live or saved ConfigContainer; those of a recipe are in `recipe`
    overrides: Mapping[str, Any] = field(default_factory=dict)


def load_target(target: Any, overrides: Mapping[str, Any] | None = None, *, artifact: Path | None = None) -> Target:
    """Return a loaded target.

    Args:
        target: a command-line target, a path, an SFTRecipe, its fields, or a ConfigContainer.
        overrides: dotted path -> value; paths of the recipe for a recipe, else of the ConfigContainer.
        artifact: folder of the packs that the run will read, or None.

    Raises:
        ConfigError: the target is unknown or cannot be loaded, or a path does not exist.
    """
    overrides = overrides or {}
    if isinstance(target, Mapping):
        target = SFTRecipe.from_mapping(target)
    if isinstance(target, SFTRecipe):
        return _of_recipe(target, target.name, overrides, artifact)
    if not isinstance(target, (str, Path)):
        return _of_object(target, type(target).__name__, overrides, artifact)
    text = str(target)
    if not isinstance(target, Path):
        _check_text(text)
    try:
        return _of_text(text, overrides, artifact)
    except OSError as error:
        raise ConfigError(
            f"target {text!r} cannot be read: {error.strerror}. Check the path and its rights."
        ) from error


def recipe_target(
    recipe: SFTRecipe | str | Path, overrides: Mapping[str, Any] | None = None, *, artifact: Path | None = None
) -> Target:
    """Return the target of a recipe as `build` names it; a recipe of the catalogue wins over a folder of that name.

    Raises:
        ConfigError: as `load_target`.
    """
    place = recipe if isinstance(recipe, SFTRecipe) else str(recipe)
    if isinstance(place, str) and Path(place).is_dir():
        place = catalogue_target(place)
    return load_target(place, overrides, artifact=artifact)


def _of_text(text: str, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    if _names_artifact(text):
        if overrides:
            raise ConfigError(f"--set {next(iter(overrides))}; an artifact has no settings. Remove it.")
        return Target(kind="artifact", place=text, artifact=artifact_place(text))
    path, _, function = text.rpartition(":") if ":" in text and not Path(text).is_file() else (text, "", "")
    if Path(path).suffix.lower() in _SETTINGS_SUFFIXES:
        if function:
            raise ConfigError(f"target is {text!r}; a {Path(path).suffix} file has no functions. Remove :{function}.")
        return _of_file(Path(path), overrides, artifact)
    found = _of_object(_load_value(text), text, overrides, artifact)
    is_file = Path(path).suffix.lower() == ".py"
    return replace(found, file=Path(path) if is_file else None, function=function or None) if is_file else found


def _check_text(text: str) -> None:
    if not text.strip() or "\0" in text:
        raise ConfigError(f"target is {text!r}, which names nothing. Allowed: {_FORMS}.")
    if scheme_of(text) is not None and text.lower().endswith((*_SETTINGS_SUFFIXES, ".py")):
        raise ConfigError(f"target is {text!r}; of an object store only artifacts are checked. Copy the file.")
    if text.endswith(":"):
        raise ConfigError(f"target is {text!r}; the name after the colon is missing. Allowed: {_FORMS}.")


def _names_artifact(text: str) -> bool:
    path = Path(text)
    return (
        scheme_of(text) is not None
        or path.is_dir()
        or path.name.endswith(_PACKED_SUFFIXES)
        or any(mark in path.name for mark in "*?")
    )


def _of_file(path: Path, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    values = read_sections(path)
    if is_saved_container(values):
        config = changed(config_of_saved(values, place=str(path)), overrides)
        return Target(kind="saved", place=str(path), config=config, file=path, overrides=overrides)
    with written_in(path):
        recipe = SFTRecipe.from_mapping(values)
    found = _of_recipe(recipe, str(path), overrides, artifact)
    assert found.recipe is not None
    assert found.config is not None
    return replace(found, file=path, config=replace(found.config, inputs=inputs_of(found.recipe)))


def _of_recipe(recipe: SFTRecipe, place: str, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    recipe = recipe.override(overrides) if overrides else recipe
    config = config_of_recipe(recipe, place=place, artifact=artifact)
    return Target(kind="recipe", place=place, recipe=recipe, config=config)


def _of_object(value: Any, place: str, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    if isinstance(value, SFTRecipe):
        return _of_recipe(value, place, overrides, artifact)
    if is_container(value):
        config = changed(config_of_container(value, place=place), overrides)
        return Target(kind="container", place=place, config=config, container=value, overrides=overrides)
    kind = type(value).__name__
    found, others = f"target {place!r} gives a {kind}", ""
    advice = "Return one of these."
    if place == kind:
        found, others, advice = f"target is of type {kind}", "a path, ", "Give one of these."
    if callable(value):
        advice = "Call it first, and give what it returns."
    elif hasattr(value, "output"):
        advice = "Give its `output`."
    raise ConfigError(f"{found}; allowed: {others}an SFTRecipe or a ConfigContainer. {advice}")


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the host's warnings about missing GPUs, and the output of a user's function."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _load_value(text: str) -> Any:
    if text.startswith(PREFIX):
        text = f"{MODULE}:{text.removeprefix(PREFIX)}"
    elif ":" not in text and Path(text).suffix.lower() != ".py":
        return _of_catalogue(text)
    install_import_hook()
    try:
        with quiet():
            return load_object(text, suffixes=(RECIPE_SUFFIX, SUFFIX))
    except ConfigError as error:
        raise _explained(error, text) from None


def _of_catalogue(name: str) -> SFTRecipe:
    if Path(name).exists():
        raise ConfigError(f"target is {name!r}; that is a file of another kind. Allowed: {_FORMS}.")
    try:
        place = catalogue_target(name)
    except ConfigError as error:
        _, has_hint, nearest = str(error).partition("Did you mean ")
        hint = f" Did you mean {nearest}" if has_hint else ""
        raise ConfigError(f"target is {name!r}; there is no such file or folder.{hint} Allowed: {_FORMS}.") from None
    return load_recipe(place)


def _explained(error: ConfigError, text: str) -> ConfigError:
    if not text.startswith("megatron."):
        return error
    if "megatron.bridge" not in sys.modules:
        return ConfigError(
            f"{error} Megatron-Bridge's own recipes need megatron-bridge here; without it, check a config that was "
            "saved with cfg.to_yaml(FILE)."
        )
    if error.__cause__ is None:
        return error
    return ConfigError(
        f"target {text!r} cannot be made here: {type(error.__cause__).__name__}: {error.__cause__} Most recipes of "
        "Megatron-Bridge read the model's config.json from the Hugging Face hub: run once with access to it, or check "
        "a config that was saved with cfg.to_yaml(FILE)."
    )
