"""Loads recipes by file, function or name: those of ./recipes first, then those that come with bridgepack.

Names are read from the source text of Python files. Listing runs only bridgepack's own files; a file of ./recipes runs
when one of its recipes is loaded.
"""

import ast
import contextlib
import inspect
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.config.arguments import check_arguments
from bridgepack.config.errors import nearest_name
from bridgepack.config.reading import (
    FORMS,
    RECIPE_SUFFIX,
    as_recipe,
    load_module,
    load_object,
    parse_overrides,
    read_sections,
    run_user_code,
    written_in,
)
from bridgepack.config.recipe.recipe import SFTRecipe, checked_object
from bridgepack.errors import ConfigError
from bridgepack.user_files import read_bytes, reason_of

__all__ = ["catalogue", "catalogue_folders", "catalogue_names", "catalogue_target", "load_recipe", "parse_overrides"]

_LOG = logging.getLogger(__name__)
LOCAL_FOLDER = "recipes"
#: Folder of the recipes in the wheel, beside this package's modules.
PACKAGED_FOLDER = "recipes_catalogue"
_FILE_SUFFIXES = (".py", ".yaml", ".yml", ".toml")
_USES_BRIDGEPACK = re.compile(r"^\s*(?:from|import)\s+bridgepack\b", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
#: Maximum names in a hint.
_NAMED = 5


#: Sizes of a topology that the catalogue shows.
_SIZES = (
    "context_parallel_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One recipe of the catalogue."""

    name: str  #: its function's name, or its file's name without the suffix
    family: str  #: name of its file, without the suffix
    target: str  #: its location, as `load_recipe` takes it
    #: the recipe; None if it cannot be loaded, or if its Python file is not bridgepack's own and so not run
    recipe: SFTRecipe | None = None
    summary: str = ""  #: first line of its docstring; empty for a YAML or TOML file
    error: str = ""  #: why it cannot be loaded; empty otherwise

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values with stable keys; unknown values are None."""
        recipe = self.recipe
        topology = recipe.parallelism if recipe else None
        return {
            "name": self.name,
            "family": self.family,
            "target": self.target,
            "summary": self.summary,
            "error": self.error or None,
            "model": recipe.model.name if recipe and recipe.model else None,
            "method": recipe.method.kind if recipe else None,
            "packing": recipe.packing.mode if recipe else None,
            "num_gpus": topology.num_gpus if topology else None,
            "seq_length": recipe.packing.packed_sequence_size if recipe else None,
            **{name: getattr(topology, name, None) for name in _SIZES},
        }


def catalogue_folders() -> tuple[Path, ...]:
    """Return the recipe folders in search order: ./recipes, then bridgepack's own."""
    shipped_folder = _own_folder()
    recipes = {folder.resolve(): folder for folder in (shipped_folder, Path(LOCAL_FOLDER)) if folder.is_dir()}
    return tuple(reversed(recipes.values()))


def _own_folder() -> Path:
    package = Path(__file__).parents[1]
    in_package, checkout = package / PACKAGED_FOLDER, package.parents[1]
    is_checkout = not in_package.is_dir() and (checkout / "pyproject.toml").is_file()
    return checkout / LOCAL_FOLDER if is_checkout else in_package


def catalogue(*, family: str | None = None) -> tuple[CatalogueEntry, ...]:
    """Return every recipe of the catalogue, or of one family, in file order; of equal names the first counts.

    Raises:
        ConfigError: no such family.
    """
    files = list(_files())
    families = sorted({file.stem for file in files})
    if family is not None and family not in families:
        raise ConfigError(f"--family is {family!r}; allowed: {', '.join(families)}.{_hint(family, families)}")
    recipes: dict[str, CatalogueEntry] = {}
    for file in files:
        if family in (None, file.stem):
            for entry in _entries_of(file):
                recipes.setdefault(entry.name, entry)
    return tuple(sorted(recipes.values(), key=lambda entry: entry.family))


def catalogue_names() -> tuple[str, ...]:
    """Return the sorted names of all recipes of the catalogue; runs no code and skips broken files."""
    return tuple(sorted(_targets()))


def catalogue_target(name: str) -> str:
    """Return a recipe's location, as `load_recipe` takes it, by its name with or without `_recipe`; runs no code.

    Raises:
        ConfigError: no recipe has that name.
    """
    targets = _targets() if _NAME.fullmatch(name) else {}
    target = targets.get(name) or targets.get(f"{name}{RECIPE_SUFFIX}")
    if target is None:
        missing = "" if Path(name).exists() else " No such file or folder."
        raise ConfigError(f"recipe is {name!r}; allowed: {FORMS}.{_hint(name, targets) or missing}")
    return target


def similar_recipes(name: str) -> str:
    """Return a sentence with the recipes of the catalogue whose names are like a name, after a space, or nothing."""
    return _hint(name, _targets() if _NAME.fullmatch(name) else {})


def _targets() -> dict[str, str]:
    """Return recipe name -> location, the first of equal names; runs no code and skips broken files."""
    recipes: dict[str, str] = {}
    for file in _files():
        with contextlib.suppress(ConfigError):
            for name in _summaries(file):
                recipes.setdefault(name, _target(file, name))
    return recipes


def _hint(name: str, names: Iterable[str]) -> str:
    full = {full_name.removesuffix(RECIPE_SUFFIX): full_name for full_name in names}
    completions = [full_name for short, full_name in full.items() if short.lower().startswith(name.lower())]
    if completions:
        more = f", ... ({len(completions) - _NAMED} more)" if len(completions) > _NAMED else ""
        return f" Did you mean {', '.join(completions[:_NAMED])}{more}?"
    nearest = nearest_name(name.removesuffix(RECIPE_SUFFIX), full)
    return f" Did you mean {full[nearest]}?" if nearest else ""


def _files() -> Iterator[Path]:
    """Yield the recipe files; Python files that do not import bridgepack are skipped."""
    for path in (path for folder in catalogue_folders() for path in sorted(folder.iterdir())):
        is_recipe = path.is_file() and path.suffix.lower() in _FILE_SUFFIXES and path.name[0] not in "._"
        if is_recipe and _is_python(path):
            is_recipe = _uses_bridgepack(path)
        if is_recipe:
            yield path


def _uses_bridgepack(path: Path) -> bool:
    """Return whether a Python file imports bridgepack; True of one that cannot be read, which is then said."""
    try:
        return bool(_USES_BRIDGEPACK.search(read_bytes(path).decode(errors="replace")))
    except OSError:
        return True


def _is_python(path: Path) -> bool:
    return path.suffix.lower() == ".py"


def _target(file: Path, name: str) -> str:
    return f"{file}:{name}" if _is_python(file) else str(file)


def _entries_of(file: Path) -> Iterator[CatalogueEntry]:
    is_own = file.parent.resolve() == _own_folder().resolve()
    try:
        summaries = _summaries(file)
        module = load_module(file) if _is_python(file) and is_own else None
    except ConfigError as error:
        yield CatalogueEntry(name=file.stem, family=file.stem, target=str(file), error=str(error))
        return
    for name, summary in summaries.items():
        entry = CatalogueEntry(name=name, family=file.stem, target=_target(file, name), summary=summary)
        try:
            if module:
                function = getattr(module, name)
                recipe = as_recipe(run_user_code(function, entry.target), entry.target)
                yield replace(entry, recipe=recipe, summary=(inspect.getdoc(function) or "").partition("\n")[0])
            else:
                yield entry if _is_python(file) else replace(entry, recipe=SFTRecipe.from_mapping(read_sections(file)))
        except ConfigError as error:
            yield replace(entry, error=str(error))


def _summaries(file: Path) -> Mapping[str, str]:
    """Return recipe name -> first line of its docstring for one file; a YAML or TOML file is one recipe.

    Raises:
        ConfigError: it is not Python.
    """
    if not _is_python(file):
        return {file.stem: ""}
    try:
        tree = ast.parse(read_bytes(file))
    except OSError as error:
        raise ConfigError(f"recipe {str(file)!r} cannot be read: {reason_of(error)}. Remove it.") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ConfigError(f"recipe {str(file)!r} is not Python: {error}. Correct that line.") from None
    recipes = {name: summary for node in tree.body for name, summary in _named_by(node)}
    return {name: text for name, text in recipes.items() if name.endswith(RECIPE_SUFFIX) and not name.startswith("_")}


def _named_by(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield (name, first docstring line) of what a statement defines, if it can be a recipe function."""
    if isinstance(node, ast.FunctionDef):
        parameters = node.args
        has_required = (
            len(parameters.posonlyargs) + len(parameters.args) > len(parameters.defaults)
            or None in parameters.kw_defaults
        )
        if not has_required:
            yield node.name, (ast.get_docstring(node) or "").partition("\n")[0]
    elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
        yield from ((target.id, "") for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.ImportFrom) and not f"{node.module}.".startswith("bridgepack."):
        yield from ((alias.asname or alias.name, "") for alias in node.names)


@check_arguments
def load_recipe(
    target: str | Path | SFTRecipe | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> SFTRecipe:
    """Return the recipe that `target` names, with overrides applied and validated.

    Args:
        target: a recipe, its fields as plain values, or its location: `FILE.yaml`, `FILE.toml`, `FILE.py[:FUNCTION]`,
            `package.module:FUNCTION`, or a name in the catalogue. FUNCTION takes no arguments; it may be omitted if the
            file has exactly one `*_recipe` function.
        overrides: dotted path -> value, e.g. `{"packing.packed_sequence_size": 8192}`.

    Raises:
        ConfigError: it cannot be found or read, or has an unknown field or an impossible value.
    """
    if isinstance(target, Mapping):
        recipe = SFTRecipe.from_mapping(target)
    else:
        with contextlib.redirect_stdout(sys.stderr):  # what a recipe's code prints is no answer of the command
            recipe = checked_object(target) if isinstance(target, SFTRecipe) else _load(str(target))
    if overrides:
        recipe = recipe.override(overrides)
        tell_replacements(recipe)
    return recipe.for_installed_host()


def tell_replacements(recipe: SFTRecipe) -> None:
    """Say which of a recipe's settings overrides have replaced."""
    for pair in recipe.replacements:
        _LOG.warning("%s", pair.text())


def _load(target: str) -> SFTRecipe:
    place, _, function = target.rpartition(":") if ":" in target else (target, "", "")
    suffix = Path(place).suffix.lower()
    if suffix in {".yaml", ".yml", ".toml"}:
        if function:
            raise ConfigError(f"recipe is {target!r}; a {suffix} file has no functions. Remove :{function}.")
        values = read_sections(Path(place))
        with written_in(Path(place)):
            return SFTRecipe.from_mapping(values)
    if not function and suffix != ".py":
        return _load(catalogue_target(target))
    recipe = as_recipe(load_object(target), target)
    with written_in(Path(place)) if suffix == ".py" else contextlib.nullcontext():
        return checked_object(recipe)
