"""Loads what a command is pointed at: a recipe, a ConfigContainer, a saved ConfigContainer, or an artifact."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from bridgepack.bridge.container import (
    config_of_container,
    config_of_saved,
    is_container,
    is_saved_container,
    with_changes,
)
from bridgepack.bridge.import_on_cpu import install_import_hook
from bridgepack.bridge.locations import SETTINGS_SUFFIXES, fields_in
from bridgepack.bridge.recipe import config_of_recipe, inputs_of
from bridgepack.bridge.shipped import MODULE, PREFIX, SUFFIX
from bridgepack.config.installed import installed_root, installed_version
from bridgepack.config.load import catalogue_target, load_recipe, similar_recipes, tell_replacements
from bridgepack.config.reading import FORMS, RECIPE_SUFFIX, load_object, read_sections, written_in
from bridgepack.config.recipe.recipe import SFTRecipe, checked_object
from bridgepack.data.reading.remote import artifact_place, scheme_of
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.host import ROOTS, TARGET
from bridgepack.host.roots import in_package, is_within
from bridgepack.records import RunConfig

_PACKED_SUFFIXES = (".parquet", ".pq", ".npy")
_FORMS = (
    f"a recipe ({FORMS}), a recipe of Megatron-Bridge ({TARGET.root}.{MODULE}.MODULE:FUNCTION or bridge:FUNCTION), "
    "a saved Megatron-Bridge config (FILE.yaml), or an artifact (a folder, a packed file, a pattern)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a command is pointed at, loaded once, because loading may run a user's code; commands hand it on."""

    #: a bridgepack recipe, a live ConfigContainer, a saved ConfigContainer, or an artifact alone
    kind: Literal["recipe", "container", "saved", "artifact"]
    place: str  #: what the user named
    config: RunConfig | None = None  #: the run's settings; None for an artifact alone
    recipe: SFTRecipe | None = None  #: the recipe with the overrides; None for the other kinds
    artifact: Path | None = None  #: the artifact; None for the other kinds
    file: Path | None = None  #: the file that the settings come from, or None
    function: str | None = None  #: the function in a Python file, or None
    #: what was loaded, without overrides: an SFTRecipe, a ConfigContainer, or the sections of a saved one
    source: Any = None
    overrides: Mapping[str, Any] = field(default_factory=dict)  #: dotted path -> value, changed since it was loaded
    packs: Path | None = None  #: the packs that the run will read, if known

    def override(self, overrides: Mapping[str, Any]) -> "Target":
        """Return the target with more values changed; nothing is loaded again.

        Raises:
            ConfigError: a path does not exist, a value is impossible, or an artifact has no settings.
        """
        return _settle(replace(self, overrides={**self.overrides, **overrides}))

    def reading(self, packs: Path | None) -> "Target":
        """Return the target of a run that reads these packs; nothing is loaded again."""
        return _settle(replace(self, packs=packs))


def _settle(target: Target) -> Target:
    """Return a target with the recipe and the settings that follow from its source, overrides and packs."""
    source, place, overrides = target.source, target.place, target.overrides
    if target.kind == "artifact":
        if overrides:
            raise ConfigError(f"--set {next(iter(overrides))}; an artifact has no settings. Remove it.")
        return target
    if target.kind != "recipe":
        read = config_of_saved if target.kind == "saved" else config_of_container
        return replace(target, config=with_changes(read(source, place=place), overrides))
    recipe = source.override(overrides) if overrides else source
    with fields_in(target.file, overrides):
        config = config_of_recipe(recipe, place=place, artifact=target.packs)
    if target.file is not None and target.file.suffix.lower() in SETTINGS_SUFFIXES:
        config = replace(config, inputs=inputs_of(recipe))
    return replace(target, recipe=recipe, config=config)


def load_target(target: Any, overrides: Mapping[str, Any] | None = None, *, artifact: Path | None = None) -> Target:
    """Return a loaded target.

    Args:
        target: a command-line target, a path, an SFTRecipe, its fields, or a ConfigContainer.
        overrides: dotted path -> value; paths of the recipe for a recipe, else of the ConfigContainer.
        artifact: folder of the packs that the run will read, or None.

    Raises:
        ConfigError: the target is unknown or cannot be loaded, or a path does not exist.
    """
    try:
        return with_notes(_settle(replace(_load(target), overrides=dict(overrides or {}), packs=artifact)))
    except OSError as error:
        name = str(target) if isinstance(target, str | Path) else type(target).__name__
        raise ConfigError(
            f"target {name!r} cannot be read: {error.strerror}. Check the path and its permissions."
        ) from error


def recipe_target(
    recipe: SFTRecipe | str | Path, overrides: Mapping[str, Any] | None = None, *, artifact: Path | None = None
) -> Target:
    """Return the target of a recipe as `build` names it; a recipe of the catalogue wins over a folder of that name.

    What its code prints goes to standard error.

    Raises:
        ConfigError: as `load_recipe`.
    """
    if isinstance(recipe, SFTRecipe):
        return load_target(recipe, overrides, artifact=artifact)
    text = catalogue_target(str(recipe)) if Path(recipe).is_dir() else str(recipe)
    with redirect_stdout(sys.stderr):
        target_of_text = _target_of_object(load_recipe(text), text)
    return with_notes(
        _settle(replace(target_of_text, **_written_at(text), overrides=dict(overrides or {}), packs=artifact))
    )


def file_of(target: Any) -> Path | None:
    """Return the file with the settings of a target, loaded or as a user names it; None if it is none or not known."""
    if isinstance(target, Target):
        return target.file
    if not isinstance(target, str | Path) or Path(target).is_dir():
        return None
    path, _ = _parts(str(target))
    with suppress(ConfigError):
        if not path.suffix:  # a name of the catalogue, whose Python files are not the user's
            path = Path(catalogue_target(str(target)))
            return path if path.suffix.lower() in SETTINGS_SUFFIXES else None
    return path if path.suffix.lower() in {*SETTINGS_SUFFIXES, ".py"} else None


def saying_places[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of a recipe, or of a target, whose errors on a field say the file and the line of it."""

    @wraps(function)
    def placing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BridgepackError:
            arguments: dict[str, Any] = dict(kwargs)
            target = arguments.get("recipe", arguments.get("target", args[0] if args else None))
            of_call = arguments.get("overrides") or {}  # which may be what the error is about
            overrides = of_call if isinstance(of_call, Mapping) else {}
            with fields_in(file_of(target), {**getattr(target, "overrides", {}), **overrides}):
                raise

    return placing


def with_notes(target: Target) -> Target:
    """Return a target, after saying which of its settings overrides have replaced."""
    if target.recipe is not None and target.overrides:
        tell_replacements(target.recipe)
    return target


def _load(target: Any) -> Target:
    if isinstance(target, Mapping):
        target = SFTRecipe.from_mapping(target)
    if isinstance(target, SFTRecipe):
        return _target_of_object(target, target.name)
    if not isinstance(target, (str, Path)):
        return _target_of_object(target, type(target).__name__)
    text = str(target)
    if not isinstance(target, Path):
        _check_text(text)
    return _load_text(text)


def _load_text(text: str) -> Target:
    if _names_artifact(text):
        return Target(kind="artifact", place=text, artifact=artifact_place(text))
    path, function = _parts(text)
    if path.suffix.lower() in SETTINGS_SUFFIXES:
        if function:
            raise ConfigError(f"target is {text!r}; a {path.suffix} file has no functions. Remove :{function}.")
        return _load_file(path)
    written_at = _written_at(text)
    with fields_in(written_at.get("file")):
        return replace(_target_of_object(_load_value(text), text), **written_at)


def _parts(text: str) -> tuple[Path, str]:
    """Return the file that a text names, and the function after its colon."""
    path, _, function = text.rpartition(":") if ":" in text and not Path(text).is_file() else (text, "", "")
    return Path(path), function


def _written_at(text: str) -> dict[str, Any]:
    """Return the fields `file` and `function` of a target that is named by a file."""
    path, function = _parts(text)
    is_file = path.suffix.lower() in {*SETTINGS_SUFFIXES, ".py"}
    return {"file": path, "function": function or None} if is_file else {}


def _check_text(text: str) -> None:
    if not text.strip() or "\0" in text:
        raise ConfigError(f"target is {text!r}, which names nothing. Allowed: {_FORMS}.")
    if scheme_of(text) is not None and text.lower().endswith((*SETTINGS_SUFFIXES, ".py")):
        raise ConfigError(f"target is {text!r}; only artifacts can be checked in an object store. Copy the file here.")
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


def _load_file(path: Path) -> Target:
    values = read_sections(path)
    if is_saved_container(values):
        return Target(kind="saved", place=str(path), source=values, file=path)
    with written_in(path):
        return Target(kind="recipe", place=str(path), source=SFTRecipe.from_mapping(values), file=path)


def _target_of_object(value: Any, place: str) -> Target:
    if isinstance(value, SFTRecipe):
        return Target(kind="recipe", place=place, source=checked_object(value))
    if is_container(value):
        return Target(kind="container", place=place, source=value)
    kind = type(value).__name__
    statement, other_kinds = f"target {place!r} gives a {kind}", ""
    advice = "Return one of these."
    if place == kind:
        statement, other_kinds, advice = f"target is of type {kind}", "a path, ", "Give one of these."
    if callable(value):
        advice = "Call it first, and give what it returns."
    elif hasattr(value, "output"):
        advice = "Give its `output`."
    raise ConfigError(f"{statement}; allowed: {other_kinds}an SFTRecipe or a ConfigContainer. {advice}")


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
        text = f"{installed_root()}.{MODULE}:{text.removeprefix(PREFIX)}"
    elif ":" not in text and Path(text).suffix.lower() != ".py":
        return _load_catalogue_recipe(text)
    install_import_hook()
    try:
        with quiet():
            return load_object(text, suffixes=(RECIPE_SUFFIX, SUFFIX))
    except ConfigError as error:
        raise _explain(error, text) from None


def _load_catalogue_recipe(name: str) -> SFTRecipe:
    if Path(name).exists():
        raise ConfigError(f"target is {name!r}; that is a file of another kind. Allowed: {_FORMS}.")
    try:
        place = catalogue_target(name)
    except ConfigError:
        hint = similar_recipes(name)
        raise ConfigError(f"target is {name!r}; there is no such file or folder.{hint} Allowed: {_FORMS}.") from None
    return load_recipe(place)


def _explain(error: ConfigError, text: str) -> ConfigError:
    root, module = installed_root(), text.partition(":")[0]
    package = next((package for package in ROOTS if is_within(module, package)), None)
    if package is None and not text.startswith("megatron."):
        return error
    if package not in (None, root) and installed_version() is not None:
        return ConfigError(
            f"{error} megatron-bridge {installed_version()} is installed, whose package is {root}: name "
            f"{in_package(text, package, root)}."
        )
    if root not in sys.modules:
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
