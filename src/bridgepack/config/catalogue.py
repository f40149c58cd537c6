"""The recipes at hand: those of the folder `recipes` here, then those that come with bridgepack."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.config.errors import nearest_name
from bridgepack.config.reading import (
    FORMS,
    RECIPE_SUFFIX,
    as_recipe,
    is_of_bridgepack,
    load_module,
    read_sections,
    run_user_code,
)
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

LOCAL_FOLDER = "recipes"
#: Where the wheel has the recipes, beside this package's modules.
PACKAGED_FOLDER = "recipes_catalogue"
_FILE_SUFFIXES = (".py", ".yaml", ".yml", ".toml")
_USES_BRIDGEPACK = re.compile(r"^\s*(?:from|import)\s+bridgepack\b", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One recipe of the catalogue.

    Attributes:
        name: of its function, or of its file without the suffix.
        family: name of the file it is in, without the suffix.
        target: where it is, as `load_recipe` takes it.
        recipe: the recipe; None where it cannot be loaded.
        summary: first line of its docstring; empty for a file.
        error: why it cannot be loaded; empty otherwise.
    """

    name: str
    family: str
    target: str
    recipe: SFTRecipe | None = None
    summary: str = ""
    error: str = ""


def catalogue_folders() -> tuple[Path, ...]:
    """Return the folders that recipes are looked up in, first come first: `recipes` here, then bridgepack's own."""
    package = Path(__file__).parents[1]
    packaged, checkout = package / PACKAGED_FOLDER, package.parents[1]
    is_checkout = not packaged.is_dir() and (checkout / "pyproject.toml").is_file()
    own = checkout / LOCAL_FOLDER if is_checkout else packaged
    found = {folder.resolve(): folder for folder in (own, Path(LOCAL_FOLDER)) if folder.is_dir()}
    return tuple(reversed(found.values()))


def catalogue(*, family: str | None = None) -> tuple[CatalogueEntry, ...]:
    """Return every recipe of the catalogue, by family and then as its file has them; the first of a name counts.

    Args:
        family: only recipes of this family.

    Raises:
        ConfigError: there is no such family.
    """
    files = list(_files())
    families = sorted({file.stem for file in files})
    if family is not None and family not in families:
        raise ConfigError(f"--family is {family!r}; allowed: {', '.join(families)}.{_hint(family, families)}")
    found: dict[str, CatalogueEntry] = {}
    for file in files:
        if family in (None, file.stem):
            for entry in _entries_of(file):
                found.setdefault(entry.name, entry)
    return tuple(sorted(found.values(), key=lambda entry: entry.family))


def catalogue_names() -> tuple[str, ...]:
    """Return the name of every recipe of the catalogue, sorted; no recipe is called, and a broken file has none."""
    names: set[str] = set()
    for file in _files():
        with contextlib.suppress(ConfigError):
            names.update(_functions_of(file))
    return tuple(sorted(names))


def catalogue_target(name: str) -> str:
    """Return where a recipe of the catalogue is, as `load_recipe` takes it; no recipe is called.

    Args:
        name: of its function, with or without `_recipe`, or of its file.

    Raises:
        ConfigError: there is none of that name.
    """
    targets: dict[str, str] = {}
    if _NAME.fullmatch(name):
        for file in _files():
            with contextlib.suppress(ConfigError):  # a broken file has no names; the others count
                for known, function in _functions_of(file).items():
                    targets.setdefault(known, f"{file}:{known}" if function else str(file))
    target = targets.get(name) or targets.get(f"{name}{RECIPE_SUFFIX}")
    if target is None:
        missing = "" if Path(name).exists() else " No such file or folder."
        raise ConfigError(f"recipe is {name!r}; allowed: {FORMS}.{_hint(name, targets) or missing}")
    return target


def _hint(name: str, known: Iterable[str]) -> str:
    nearest = nearest_name(name, known) or nearest_name(f"{name}{RECIPE_SUFFIX}", known)
    return f" Did you mean {nearest}?" if nearest else ""


def _files() -> Iterator[Path]:
    """Yield the recipe files; Python files that do not import bridgepack are none, and are not run."""
    for folder in catalogue_folders():
        for path in sorted(folder.iterdir()):
            is_hidden = path.name.startswith((".", "_"))
            if path.is_file() and not is_hidden and path.suffix.lower() in _FILE_SUFFIXES and _is_ours(path):
                yield path


def _is_ours(path: Path) -> bool:
    if path.suffix.lower() != ".py":
        return True
    return bool(_USES_BRIDGEPACK.search(path.read_text(encoding="utf-8", errors="replace")))


def _entries_of(file: Path) -> Iterator[CatalogueEntry]:
    try:
        functions = _functions_of(file)
    except ConfigError as error:
        yield CatalogueEntry(name=file.stem, family=file.stem, target=str(file), error=str(error))
        return
    for name, function in functions.items():
        target = f"{file}:{name}" if function else str(file)
        entry = CatalogueEntry(name=name, family=file.stem, target=target)
        try:
            recipe = (
                as_recipe(run_user_code(function, target), target)
                if function
                else SFTRecipe.from_mapping(read_sections(file))
            )
            summary = (inspect.getdoc(function) or "").partition("\n")[0] if function else ""
            yield replace(entry, recipe=recipe, summary=summary)
        except ConfigError as error:
            yield replace(entry, error=str(error))


def _functions_of(file: Path) -> Mapping[str, Callable[[], Any] | None]:
    """Return the recipe functions of a file by name, in its order; the name of a YAML or TOML file stands alone."""
    if file.suffix.lower() != ".py":
        return {file.stem: None}
    return {name: value for name, value in vars(load_module(file)).items() if _is_recipe_function(name, value)}


def _is_recipe_function(name: str, value: Any) -> bool:
    is_public = name.endswith(RECIPE_SUFFIX) and not name.startswith("_") and callable(value)
    if not is_public or is_of_bridgepack(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.default is not inspect.Parameter.empty or one.kind in optional for one in parameters)
