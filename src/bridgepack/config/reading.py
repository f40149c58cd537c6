"""Reads user input: sections of YAML and TOML files, `path=value` texts, objects from Python code."""

import contextlib
import importlib
import importlib.util
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from bridgepack.config.errors import config_error, did_you_mean, nearest_name, quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError, Problem
from bridgepack.records.words import kind_of
from bridgepack.user_files import read_bytes, read_text, reason_of

#: Maximum values of a YAML file after its aliases are expanded.
_MAX_VALUES = 100_000
#: The largest whole number of a file or an override: what other programs can hold.
_LARGEST_NUMBER = 2**63 - 1
#: What a message calls a key, and the most characters of one.
_KEY = ": the key"
_MAX_KEY_CHARACTERS = 1_000
#: Maximum characters read of a file with a similar name, to see what it holds.
_BEGINNING_CHARACTERS = 1 << 16
RECIPE_SUFFIX = "_recipe"
#: Where `tomllib` says the line, which its errors have as data from Python 3.14 on.
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)$")
#: What ruamel.yaml says of a duplicate key beside the key and the lines.
_OF_DUPLICATES = re.compile(r' with value ".*" \(original value: ".*"\)| To suppress this check see: .*')
FORMS = "FILE.yaml, FILE.toml, FILE.py:FUNCTION, package.module:FUNCTION or a name from `bridgepack recipes list`"


def parse_overrides(
    items: tuple[str, ...], *, option: str = "--set", example: str = "packing.packed_sequence_size=8192"
) -> dict[str, Any]:
    """Return `path=value` strings as a mapping, values read as YAML: `8192`, `true`, `[a.jsonl, b.jsonl]`.

    `option` (where they come from) and `example` (a correct one) are for messages.

    Raises:
        ConfigError: a string has no `=`, or its value is not YAML.
    """
    overrides: dict[str, Any] = {}
    for item in items:
        path, separator, text = item.partition("=")
        if not separator or not path.strip():
            raise ConfigError(f"{option} {quote(item)}; allowed: path=value, e.g. {option} {example}.")
        if not item.isascii() and item.encode(errors="ignore").decode() != item:
            raise ConfigError(f"{option} {quote(item)} is not UTF-8. Rename the file, or correct the text.")
        _refuse_oversized({path: None}, option)
        try:
            overrides[path.strip()] = _parse_yaml(text, f"{option} {path}")
        except ConfigError:
            if set(text) & set("'\"\\\n&") or _is_number(text):
                raise
            is_open = sum(map(text.count, "[{")) > sum(map(text.count, "]}"))
            cure = f"{'Close the bracket, or quote' if is_open else 'Quote'} the value: {option} '{path}=\"{text}\"'."
            raise ConfigError(f"{option} {path} is {quote(text)}, which is not YAML. {cure}") from None
        _refuse_oversized(overrides[path.strip()], f"{option} {path}")
    return overrides


def as_recipe(value: Any, target: str) -> SFTRecipe:
    """Return `value` if it is a recipe.

    Raises:
        ConfigError: it is not a recipe.
    """
    if not isinstance(value, SFTRecipe):
        raise ConfigError(f"recipe {target!r} returns {kind_of(value)}; it must return an SFTRecipe.")
    return value


def load_object(target: str, *, suffixes: tuple[str, ...] = (RECIPE_SUFFIX,)) -> Any:
    """Return the result of a function, or the object itself, from `FILE.py[:FUNCTION]` or `package.module:FUNCTION`.

    FUNCTION may be omitted if exactly one function's name ends in one of `suffixes`.

    Raises:
        ConfigError: it cannot be found, or fails.
    """
    if "://" in target:
        raise ConfigError(f"{target!r} is a URL; this command reads recipes and packs of this machine. Copy it here.")
    place, _, function = target.rpartition(":") if ":" in target else (target, "", "")
    if Path(place).suffix.lower() == ".py":
        module = load_module(Path(place))
        with written_in(Path(place)):
            return _object_from_module(module, function, target, suffixes)
    if not function:
        hint = " No such file or folder." if not Path(target).exists() else ""
        raise ConfigError(f"recipe is {target!r}; allowed: {FORMS}.{hint}")
    return _object_from_module(_module_from_name(place, target), function, target, suffixes)


def read_sections(path: Path, *, content: str = "recipe", fields: str = "name, data, ...") -> Mapping[str, Any]:
    """Return the sections of a YAML or TOML file as plain values; `content` and `fields` are for messages.

    Raises:
        ConfigError: it cannot be read, or holds no sections.
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except FileNotFoundError:
        mark = fields.partition(",")[0] if content != "recipe" else ""
        raise ConfigError(f"{content} is {str(path)!r}; there is no such file.{_neighbours(path, mark)}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error)
        raise ConfigError(
            f"{content} is {str(path)!r}; it cannot be read: {reason}. It must be a UTF-8 file."
        ) from None
    with written_in(path):
        try:
            values = tomllib.loads(text) if path.suffix.lower() == ".toml" else _parse_yaml(text, str(path))
        except (ValueError, RecursionError) as error:
            line = _TOML_LINE.search(str(error))
            message = f"{content} {str(path)!r} is not TOML: {_reason(error)}. Correct that line."
            raise _at_line(message, int(line[1]) if line else None) from None
        _refuse_oversized(values, str(path))
        if not isinstance(values, Mapping):
            state = "empty" if values is None else f"{kind_of(values)}"
            raise ConfigError(f"{content} {str(path)!r} is {state}; allowed: sections with named fields ({fields}).")
    return values


@contextlib.contextmanager
def written_in(path: Path) -> Iterator[None]:
    """Add the file to errors raised inside."""
    try:
        yield
    except ConfigError as error:
        problems = error.problems or (Problem(message=str(error)),)
        error.problems = tuple(replace(problem, file=problem.file or str(path)) for problem in problems)
        raise


def _at_line(message: str, line: int | None) -> ConfigError:
    error = ConfigError(message)
    error.problems = () if line is None else (Problem(message=message, line=line),)
    return error


def _neighbours(path: Path, mark: str = "") -> str:
    files = [entry for entry in path.parent.iterdir() if entry.is_file()] if path.parent.is_dir() else []
    stems = {
        entry.stem: entry.name for entry in files if not mark or _holds(entry, mark)
    }  # a common suffix says nothing
    nearest = nearest_name(path.stem, stems)
    return f" Did you mean {str(path.parent / stems[nearest])!r}?" if nearest else " Check the path."


def _holds(path: Path, mark: str) -> bool:
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return mark in file.read(_BEGINNING_CHARACTERS)
    return False


def _parse_yaml(text: str, where: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        if "*" in text and _num_values(YAML(typ="safe", pure=True).compose(text), {}) > _MAX_VALUES:
            raise ValueError(f"its aliases repeat more than {_MAX_VALUES:,} values, or themselves")
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:
        message = " ".join(_reason(error).split()).replace('in "<unicode string>",', "at")
        message = _OF_DUPLICATES.sub("", message)
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = None if mark is None else int(mark.line) + 1
        place = "" if line is None or f"line {line}," in message[:300] else f" (line {line})"
        raise _at_line(f"{where} is not YAML: {message[:300]}{place}. Correct it.", line) from None
    return values


def _reason(error: Exception) -> str:
    """Return what an error of a parser says; of a number that Python does not read, without Python's advice."""
    text = str(error)
    return "it has a whole number of thousands of digits" if text.startswith("Exceeds the limit") else text


def _refuse_oversized(values: Any, where: str) -> None:
    """Check that whole numbers have 64 bits and keys are names, so that messages, files and the host can hold them.

    Raises:
        ConfigError: one is larger.
    """
    parts = [(where, values)]
    for place, value in parts:  # grows
        if isinstance(value, int) and not -_LARGEST_NUMBER - 1 <= value <= _LARGEST_NUMBER:
            raise ConfigError(f"{place} is {quote(value)}; allowed: at most 64 bits. Correct it.")
        if isinstance(value, str) and place.endswith(_KEY) and len(value) > _MAX_KEY_CHARACTERS:
            size = f"has {len(value):,} characters; allowed: at most {_MAX_KEY_CHARACTERS:,}"
            raise ConfigError(f"{place} {quote(value)} {size}. Correct it.")
        if isinstance(value, Mapping):
            parts += [(f"{place}{_KEY}", key) for key in value]
            parts += [(f"{place}: {quote(key)}", item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            parts += [(place, item) for item in value]


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace("_", "").isdigit()


def _num_values(node: Any, counts: dict[int, float]) -> float:
    """Return the number of values in a composed node, aliases counted each time; infinity if they are circular."""
    if id(node) not in counts:
        counts[id(node)] = math.inf  # until its children are counted
        parts = node.value if node is not None and not isinstance(node.value, str) else ()
        nodes = (inner for part in parts for inner in (part if isinstance(part, tuple) else (part,)))
        counts[id(node)] = 1 + sum(_num_values(inner, counts) for inner in nodes)
    return counts[id(node)]


class _SilentLoader(SourceFileLoader):
    def set_data(self, *_args: Any, **_words: Any) -> None:
        """Write no bytecode: reading a recipe leaves nothing beside it."""


def load_module(path: Path) -> ModuleType:
    """Return the module of a Python file, without a `__pycache__` beside it.

    Raises:
        ConfigError: the file does not exist, or its code fails.
    """
    try:
        read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"recipe is {str(path)!r}; there is no such file.{_neighbours(path)}") from None
    except OSError as error:
        raise ConfigError(f"recipe is {str(path)!r}; it cannot be read: {reason_of(error)}.") from None
    name = f"bridgepack_recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_SilentLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up annotations there
    with written_in(path):
        run_user_code(lambda: spec.loader.exec_module(module), str(path))  # type: ignore[union-attr]
    return module


def _module_from_name(name: str, target: str) -> ModuleType:
    def find() -> Any:
        with contextlib.suppress(ImportError, ValueError):
            return importlib.util.find_spec(name)
        return None

    if "" not in sys.path:
        sys.path.append("")  # behind all that is installed, whose modules no file of the folder may replace
    if run_user_code(find, target) is None:
        raise ConfigError(f"recipe is {target!r}; there is no module {name!r}. Allowed: {FORMS}.")
    module: ModuleType = run_user_code(lambda: importlib.import_module(name), name)
    return module


def _object_from_module(module: ModuleType, function: str, target: str, suffixes: tuple[str, ...]) -> Any:
    def is_recipe(value: Any) -> bool:
        return callable(value) and not str(getattr(value, "__module__", "")).startswith("bridgepack.")

    names = sorted(name for name, value in vars(module).items() if name.endswith(suffixes) and is_recipe(value))
    if not function and len(names) != 1:
        choices = ", ".join(names) or f"none; a recipe function's name ends in {' or '.join(suffixes)}"
        raise ConfigError(f"recipe is {target!r}; name the function: {target}:FUNCTION. It has: {choices}.")
    value = getattr(module, function or names[0], None)
    if value is None:
        hint = did_you_mean(function, names, f"It has: {', '.join(names[:20]) or 'no recipe functions'}.")
        raise ConfigError(f"recipe is {target!r}; there is no {function!r} in it. {hint}")
    return run_user_code(value, target) if callable(value) else value


def run_user_code(step: Callable[[], Any], where: str) -> Any:
    """Return the result of a user's code; whatever it raises becomes a ConfigError that names `where`.

    Raises:
        ConfigError: it failed.
    """
    try:
        return step()
    except ConfigError:
        raise
    except ValidationError as error:
        raise config_error(error, SFTRecipe) from None
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == where else None
        text = f"recipe {where!r} failed: {type(error).__name__}: {error}. Correct its code."
        raise _at_line(text, line) from error
