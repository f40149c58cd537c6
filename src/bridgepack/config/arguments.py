"""What is given to Python functions: arguments of the types that they name, and options as a dataclass."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from inspect import signature
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic.dataclasses import is_pydantic_dataclass

from bridgepack.config.errors import quote
from bridgepack.errors import ConfigError, unusable

#: Options that are paths of this machine.
_PATHS = frozenset({"artifact", "store", "scratch"})
_PLACE = frozenset({str, Path, NoneType})
#: Largest whole number that an argument may be.
MAX_NUMBER = 2**63 - 1
_WORDS: Mapping[Any, str] = MappingProxyType(
    {
        str: "str",
        Path: "path",
        int: "a whole number from 0",
        float: "a number",
        bool: "True or False",
        Mapping: "dict",
        Collection: "list",
        NoneType: "None",
    }
)
#: Beginning of what pathlib says of symbolic links that lead to each other.
_LOOP = "Symlink loop"


def check_arguments[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments of other types or names, and a current folder that is gone."""

    @wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            Path.cwd()
        except OSError:
            raise ConfigError(
                "the current folder was deleted, so relative paths cannot be found. Change to a folder that exists."
            ) from None
        refuse_types(bound(function, args, kwargs), function)
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise ConfigError(unusable(error)) from error
        except RuntimeError as error:  # of pathlib before Python 3.13, in place of an OSError
            if not str(error).startswith(_LOOP):
                raise
            raise ConfigError(f"{error}, which is a link to itself. Give another path.") from None

    return refusing


def bound(function: Callable[..., Any], args: Collection[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names.

    Raises:
        ConfigError: one is missing, or the function has no such argument.
    """
    declaration = signature(function)
    try:
        return declaration.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = ", ".join(declaration.parameters)
        raise ConfigError(f"{function.__name__}: {error}; allowed: {names}. Call it with these.") from None


def local_path(location: str | Path, name: str) -> Path:
    """Return the path of an argument that is read or written on this machine.

    Raises:
        ConfigError: it is a URL, which would become a folder named after its scheme, or no path can be so.
    """
    if "\0" in str(location):
        raise ConfigError(f"{name} is {str(location)!r}; allowed: a path, without null characters. Remove them.")
    if "://" in str(location):
        raise ConfigError(f"{name} is {location!r}, a URL; allowed: a local path. Give one.")
    return Path(location)


def stated_options[T](kind: type[T], values_by_name: Mapping[str, Any], command: str) -> T:
    """Return the options of `command` as a dataclass `kind`; paths may be given as text.

    Raises:
        ConfigError: it has no such option, or one of another type, or compares nothing.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in sorted(values_by_name.keys() - set(names)):
        raise ConfigError(f"{command} has no option {name!r}; allowed: {', '.join(names)}. Use one of these.")
    values = {
        name: local_path(item, name) if name in _PATHS and isinstance(item, str) else item
        for name, item in values_by_name.items()
    }
    if not is_pydantic_dataclass(kind):  # which says itself what it takes
        refuse_types(values, kind)
    for name in ("num_packs", "num_rows"):
        if values.get(name) == 0:
            raise ConfigError(f"{name} is 0; allowed: 1 or more, because 0 compares nothing. Raise it.")
    return kind(**values)


def refuse_types(values: Mapping[str, Any], kind: Callable[..., Any]) -> None:
    """Accept values of the types that a function or a dataclass names; it may leave names out.

    Raises:
        ConfigError: naming the first of another type.
    """
    hints = get_type_hints(kind)
    for name, value in values.items():
        hint = hints.get(name, Any)
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if not any(_fits(value, option) for option in types):
            kinds = [option for option in types if option is not str or Path not in types]
            *options, last = dict.fromkeys(_words(option) for option in kinds)
            cure = "Give its `output`." if hasattr(value, "output") else "Give one of these."
            raise ConfigError(
                f"{name} is {quote(value)}; allowed: {', '.join(options)}{' or ' if options else ''}{last}. {cure}"
            )
        if Path in types and _PLACE.issuperset(types) and isinstance(value, str) and (not value or "\0" in value):
            raise ConfigError(f"{name} is {quote(value)}; allowed: a path. Give one.")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    if origin is Collection:
        return isinstance(value, Collection) and not isinstance(value, str)
    if origin is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) <= MAX_NUMBER
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return origin is Any or isinstance(value, origin)


def _words(hint: Any) -> str:
    origin = get_origin(hint) or hint
    return ", ".join(get_args(hint)) if origin is Literal else _WORDS.get(origin, origin.__name__)
