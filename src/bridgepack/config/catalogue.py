"""The recipes at hand: those of the folder `recipes` here, then those that come with bridgepack.

Names are read from the text of Python files. Only bridgepack's own files are run to list what is in them; a file of the
folder here runs when one of its recipes is asked for.
"""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bridgepack.config.errors import nearest_name
from bridgepack.config.reading import FORMS, RECIPE_SUFFIX, as_recipe, load_module, read_sections, run_user_code
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
    """One recipe of the catalogue."""

    name: str  #: of its function, or of its file without the suffix
    family: str  #: name of the file it is in, without the suffix
    target: str  #: where it is, as `load_recipe` takes it
    #: the recipe; None where it cannot be loaded, or its Python file is not bridgepack's own and is not run
    recipe: SFTRecipe | None = None
    summary: str = ""  #: first line of its docstring; empty for a file
    error: str = ""  #: why it cannot be loaded; empty otherwise


def catalogue_folders() -> tuple[Path, ...]:
    """Return the folders that recipes are looked up in, first come first: `recipes` here, then bridgepack's own."""
    own = _own_folder()
    found = {folder.resolve(): folder for folder in (own, Path(LOCAL_FOLDER)) if folder.is_dir()}
    return tuple(reversed(found.values()))


def _own_folder() -> Path:
    package = Path(__file__).parents[1]
    packaged, checkout = package / PACKAGED_FOLDER, package.parents[1]
    is_checkout = not packaged.is_dir() and (checkout / "pyproject.toml").is_file()
    return checkout / LOCAL_FOLDER if is_checkout else packaged


def catalogue(*, family: str | None = None) -> tuple[CatalogueEntry, ...]:
    """Return every recipe of the catalogue, or of one family, as its file has them; the first of a name counts.

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
    """Return the name of every recipe of the catalogue, sorted; no code is run, and a broken file has none."""
    return tuple(sorted(_targets()))


def catalogue_target(name: str) -> str:
    """Return where a recipe is, as `load_recipe` takes it, by its name with or without `_recipe`; no code is run.

    Raises:
        ConfigError: there is none of that name.
    """
    targets = _targets() if _NAME.fullmatch(name) else {}
    target = targets.get(name) or targets.get(f"{name}{RECIPE_SUFFIX}")
    if target is None:
        missing = "" if Path(name).exists() else " No such file or folder."
        raise ConfigError(f"recipe is {name!r}; allowed: {FORMS}.{_hint(name, targets) or missing}")
    return target


def _targets() -> dict[str, str]:
    """Return name -> where its recipe is, the first of a name; no code is run, and a broken file has none."""
    found: dict[str, str] = {}
    for file in _files():
        with contextlib.suppress(ConfigError):
            for name in _summaries(file):
                found.setdefault(name, _target(file, name))
    return found


def _hint(name: str, known: Iterable[str]) -> str:
    nearest = nearest_name(name, known) or nearest_name(f"{name}{RECIPE_SUFFIX}", known)
    return f" Did you mean {nearest}?" if nearest else ""


def _files() -> Iterator[Path]:
    """Yield the recipe files; Python files that do not import bridgepack are none."""
    for path in (path for folder in catalogue_folders() for path in sorted(folder.iterdir())):
        is_recipe = path.is_file() and path.suffix.lower() in _FILE_SUFFIXES and path.name[0] not in "._"
        if is_recipe and _is_python(path):
            is_recipe = bool(_USES_BRIDGEPACK.search(path.read_text(encoding="utf-8", errors="replace")))
        if is_recipe:
            yield path


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
    """Return the recipes of a file, name -> first line of the docstring; a YAML or TOML file is one recipe.

    Raises:
        ConfigError: it is not Python.
    """
    if not _is_python(file):
        return {file.stem: ""}
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ConfigError(f"recipe {str(file)!r} is not Python: {error}. Correct that line.") from None
    found = {name: summary for node in tree.body for name, summary in _named_by(node)}
    return {name: text for name, text in found.items() if name.endswith(RECIPE_SUFFIX) and not name.startswith("_")}


def _named_by(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield what a statement makes that can be a recipe function: a name, and the first line of its docstring."""
    if isinstance(node, ast.FunctionDef):
        given = node.args
        has_required = len(given.posonlyargs) + len(given.args) > len(given.defaults) or None in given.kw_defaults
        if not has_required:
            yield node.name, (ast.get_docstring(node) or "").partition("\n")[0]
    elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
        yield from ((target.id, "") for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.ImportFrom) and not f"{node.module}.".startswith("bridgepack."):
        yield from ((alias.asname or alias.name, "") for alias in node.names)
