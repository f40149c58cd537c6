"""The declared types of the host's config classes, and its kinds of mixed precision, of megatron-bridge 0.6.2.

`fields.json` has each class once, and of each only what its parents do not say. A contract test compares it with the
installed host, and can write it again. A type is a name ("int", "path", "function", "any", ..) or a mapping: `one_of`
types, `names` of a choice, `member_of` an enum, `list` of a type, `object` of a class.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

#: The class whose fields are the sections.
CONTAINER = "megatron.bridge.training.config.ConfigContainer"
_FILE = Path(__file__).with_name("fields.json")
#: What a field allows that a recipe cannot set.
FUNCTION = "a function or class, which a recipe cannot hold"
_NAMES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "dict": "a mapping",
    "null": "null",
    "path": "a path",
    "dtype": "the name of a torch dtype, e.g. bfloat16",
    "function": FUNCTION,
}
_KINDS: Mapping[str, type] = {"bool": int, "int": int, "float": float, "str": str, "dict": Mapping}


def section_defaults() -> Mapping[str, Any]:
    """Return section -> plain values, of the sections that the host makes itself where a saved config has none."""
    sections: Mapping[str, Any] = _file()["sections"]
    return sections


@cache
def types_of(kind: str) -> Mapping[str, Any]:
    """Return field -> declared type of a class, parents included; empty for an unknown class."""
    file = _file()
    found: dict[str, Any] = {}
    if kind in file["parents"]:
        for one in (*reversed(file["parents"][kind]), kind):
            found |= file["types"].get(one, {})
    return found


def required_of(kind: str) -> tuple[str, ...]:
    """Return the fields of a class that have no default."""
    return tuple(_file()["required"].get(kind, ()))


def class_in(declared: Any) -> str | None:
    """Return the only class of objects in a type, or None."""
    options = declared.get("one_of", [declared]) if isinstance(declared, Mapping) else []
    found = [one["object"] for one in options if isinstance(one, Mapping) and "object" in one]
    return found[0] if len(found) == 1 else None


def holds_mapping(declared: Any) -> bool:
    """Return whether a type allows a mapping with any names."""
    return "dict" in (declared.get("one_of", []) if isinstance(declared, Mapping) else [declared])


def precision_names() -> list[str]:
    """Return the names of the registered kinds of mixed precision, dashes as underscores, sorted."""
    return sorted({name.replace("-", "_") for name in _file()["precisions"]})


def registered_precision(name: str) -> dict[str, Any] | None:
    """Return a registered kind of mixed precision as plain values, or None."""
    file = _file()
    changes = file["precisions"].get(name)
    return None if changes is None else {**file["precision"], **changes}


def as_plain(value: Any, declared: Any) -> Any:
    """Return a value that fits a type as the host's config has it in plain values: enums and dtypes by their class."""
    for one in declared.get("one_of", [declared]) if isinstance(declared, Mapping) else [declared]:
        if isinstance(one, Mapping) and value in one.get("names", ()) and "member_of" in one:
            return {"_target_": one["member_of"], "_name_": value}
        if one == "dtype" and isinstance(value, str):
            return {"_target_": f"torch.{value.removeprefix('torch.')}", "_call_": False}
    return value


def why_unfit(value: Any, declared: Any) -> str | None:
    """Return what a type allows, if a plain value does not fit it; None if it fits.

    Example: ("abc", "int") -> `a whole number`.
    """
    if isinstance(declared, Mapping):
        return _why_unfit_composed(value, declared)
    if declared == "any":
        return None
    if declared in ("path", "dtype", "function", "null"):
        is_dtype = declared != "dtype" or str(value).removeprefix("torch.") in _file()["dtypes"]
        fits = value is None if declared in ("null", "function") else isinstance(value, str) and is_dtype
    elif isinstance(value, bool):
        fits = declared == "bool"
    else:
        is_whole = declared == "int" and isinstance(value, float) and value.is_integer()
        is_number = declared == "float" and isinstance(value, int)
        fits = isinstance(value, _KINDS[declared]) or is_whole or is_number
    return None if fits else _NAMES[declared]


def _why_unfit_composed(value: Any, declared: Mapping[str, Any]) -> str | None:
    if "one_of" in declared:
        reasons = [why_unfit(value, one) for one in declared["one_of"]]
        return None if None in reasons else " or ".join(dict.fromkeys(reason for reason in reasons if reason))
    if "names" in declared:
        return None if value is None or _is_among(value, declared["names"]) else ", ".join(map(str, declared["names"]))
    if "list" in declared:
        if not isinstance(value, (list, tuple)):
            return "a list"
        return next(filter(None, (why_unfit(one, declared["list"]) for one in value)), None)
    return None if isinstance(value, Mapping) else f"fields of {declared['object'].rpartition('.')[2]}"


def _is_among(value: Any, names: list[Any]) -> bool:
    return any(value == name and type(value) is type(name) for name in names)


@cache
def _file() -> Any:
    return json.loads(_FILE.read_text(encoding="utf-8"))
