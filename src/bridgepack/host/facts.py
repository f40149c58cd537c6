"""The facts of one release of the host, read from its file: its configs, its classes, the types of their fields.

The file has the usual values of every section once, and only the other values of each config; of each class only what
its parents do not say. Classes have canonical names. `scripts/host_facts` writes it, and contract tests compare it with
the installed host. A type is a name ("int", "path", "function", "any", ..) or a mapping: `one_of` types, `names` of a
choice, `member_of` an enum, `list` of a type, `object` of a class.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from bridgepack.host.roots import canonical_name_of

#: The class whose fields are the sections.
CONTAINER = canonical_name_of("training.config.ConfigContainer")
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


@cache
def facts_in(path: Path) -> "ReleaseFacts":
    """Return the facts in a file, which is read once."""
    return ReleaseFacts(json.loads(path.read_text(encoding="utf-8")))


class ReleaseFacts:
    """Typed reads of the facts of one release."""

    def __init__(self, file: Mapping[str, Any]) -> None:
        self._file, self._fields = file, file["fields"]
        self._types: dict[str, Mapping[str, Any]] = {}

    @property
    def sections(self) -> list[str]:
        """Sections of a ConfigContainer."""
        return list(self._file["sections"])

    @property
    def recipes(self) -> Mapping[str, Any]:
        """Name of a shipped recipe -> places of its sections, in the order of `sections`."""
        recipes: Mapping[str, Any] = self._file["recipes"]
        return recipes

    @property
    def aliases(self) -> Mapping[str, str]:
        """Shorter name of a shipped recipe -> its name."""
        aliases: Mapping[str, str] = self._file["aliases"]
        return aliases

    @property
    def refused_recipes(self) -> Mapping[str, str]:
        """Shipped recipe that the host refuses to make by design -> the reason."""
        reasons: Mapping[str, str] = self._file["not_made"]
        return reasons

    @property
    def models(self) -> list[str]:
        """Ids of the hub's models whose settings are known."""
        return list(self._file["models"])

    @property
    def left_out(self) -> list[str]:
        """Fields of models that the file does not name: configs of their own, and functions."""
        return list(self._file["left_out"])

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Class, without its module -> field -> default, of what rules read in a saved config."""
        defaults: Mapping[str, Mapping[str, Any]] = self._file["defaults"]
        return defaults

    def shipped_recipe(self, name: str) -> dict[str, Any] | None:
        """Return the sections of a shipped recipe, by its name or a shorter one, or None."""
        places = self.recipes.get(self.aliases.get(name, name))
        return None if places is None else self._sections(places)

    @cached_property
    def models_of_tokenizers(self) -> Sequence[tuple[Mapping[str, Any], str]]:
        """The model of each shipped recipe that names a tokenizer, with the tokenizer's name."""
        recipes = ((self._part("model", places), self._part("tokenizer", places)) for places in self.recipes.values())
        names = ((model or {}, (tokenizer or {}).get("tokenizer_model")) for model, tokenizer in recipes)
        return tuple((model, name) for model, name in names if isinstance(name, str) and name)

    def common(self, kind: str) -> dict[str, Any]:
        """Return the common config for training all weights (`full`) or an adapter (`adapter`); it has no model."""
        return self._sections(self._file["common"][kind])

    def model_by_name(self, name: str) -> dict[str, Any] | None:
        """Return the settings of a model of the hub, or None if the file does not have it."""
        place = self._file["models"].get(name)
        return None if place is None else dict(self._section("model", place))

    def new_object(self, name: str, **values: Any) -> dict[str, Any]:
        """Return a new object of a class, named without its module, with its defaults and the given values."""
        defaults = next(fields for target, fields in self._file["classes"].items() if target.endswith(f".{name}"))
        return {**copy_of(defaults), **values}

    def held_value(self, path: str, value: Any) -> Any:
        """Return a value as the host stores it: an object with its class defaults, an enum's member for its name."""
        kind = self._file["enums"].get(path)
        if kind is not None and isinstance(value, str):
            return {"_target_": kind, "_name_": value}
        name = value.get("_target_") if isinstance(value, Mapping) else None
        return {**copy_of(self._file["classes"].get(name, {})), **value} if name else value

    def precision_by_name(self, name: str) -> dict[str, Any]:
        """Return the registered mixed precision for a name in a recipe."""
        precision: dict[str, Any] = self._file["precisions"][name]
        return precision

    @property
    def section_defaults(self) -> Mapping[str, Any]:
        """Section -> plain values, of the sections that the host makes itself where a saved config has none."""
        sections: Mapping[str, Any] = self._fields["sections"]
        return sections

    @property
    def class_names(self) -> list[str]:
        """The classes whose fields are known, with their modules."""
        return list(self._fields["parents"])

    def types_of(self, kind: str) -> Mapping[str, Any]:
        """Return field -> declared type of a class, parents included; empty for an unknown class.

        A model that is built from parts has the fields of its transformer beside its own.
        """
        if kind not in self._types:
            parents = self._fields["parents"].get(kind)
            classes = () if parents is None else (*reversed(parents), kind)
            types = [self._fields["types"].get(name, {}) for name in classes]
            fields = {name: field_type for of_class in types for name, field_type in of_class.items()}
            part = self._file["parts"].get(kind)
            self._types[kind] = fields if part is None else {**self.types_of(part), **fields}
        return self._types[kind]

    def required_of(self, kind: str) -> tuple[str, ...]:
        """Return the fields of a class that have no default."""
        return tuple(self._fields["required"].get(kind, ()))

    @cached_property
    def precision_names(self) -> list[str]:
        """Names of the registered kinds of mixed precision, dashes as underscores, sorted."""
        return sorted({name.replace("-", "_") for name in self._fields["precisions"]})

    def registered_precision(self, name: str) -> dict[str, Any] | None:
        """Return a registered kind of mixed precision as plain values, or None."""
        changes = self._fields["precisions"].get(name)
        return None if changes is None else {**self._fields["precision"], **changes}

    def why_unfit(self, value: Any, allowed_type: Any) -> str | None:
        """Return what a type allows, if a plain value does not fit it; None if it fits.

        Example: ("abc", "int") -> `a whole number`.
        """
        return _why_unfit(value, allowed_type, self._fields["dtypes"])

    def _sections(self, places: list[int | None]) -> dict[str, Any]:
        return {name: self._section(name, place) for name, place in zip(self.sections, places, strict=True)}

    def _part(self, name: str, places: list[int | None]) -> Any:
        """Return a section of a config by the places of all its sections."""
        return self._section(name, places[self._file["sections"].index(name)])

    def _section(self, name: str, place: int | None) -> Any:
        """Return a section by its index; in the file `=` is its whole value, `-` lists fields to remove."""
        if place is None:
            return None
        changes = self._file["others"][name][place]
        if "=" in changes:
            return copy_of(changes["="])
        absent = changes.get("-", ())
        usual = {field: value for field, value in self._file["usual"][name].items() if field not in absent}
        return copy_of({**usual, **{field: value for field, value in changes.items() if field != "-"}})


def copy_of[T](value: T) -> T:
    """Return a copy of values of a JSON file, with its lists and mappings; much faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {name: copy_of(item) if isinstance(item, dict | list) else item for name, item in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [copy_of(item) if isinstance(item, dict | list) else item for item in value]  # type: ignore[return-value]
    return value


def class_in(allowed_type: Any) -> str | None:
    """Return the only class of objects in a type, or None."""
    options = allowed_type.get("one_of", [allowed_type]) if isinstance(allowed_type, Mapping) else []
    classes = [option["object"] for option in options if isinstance(option, Mapping) and "object" in option]
    return classes[0] if len(classes) == 1 else None


def holds_mapping(allowed_type: Any) -> bool:
    """Return whether a type allows a mapping with any names."""
    return "dict" in (allowed_type.get("one_of", []) if isinstance(allowed_type, Mapping) else [allowed_type])


def as_plain(value: Any, allowed_type: Any) -> Any:
    """Return a value that fits a type as the host's config has it in plain values: enums and dtypes by their class."""
    for option in allowed_type.get("one_of", [allowed_type]) if isinstance(allowed_type, Mapping) else [allowed_type]:
        if isinstance(option, Mapping) and value in option.get("names", ()) and "member_of" in option:
            return {"_target_": option["member_of"], "_name_": value}
        if option == "dtype" and isinstance(value, str):
            return {"_target_": f"torch.{value.removeprefix('torch.')}", "_call_": False}
    return value


def _why_unfit(value: Any, allowed_type: Any, dtypes: Collection[str]) -> str | None:
    if isinstance(allowed_type, Mapping):
        return _why_unfit_composed(value, allowed_type, dtypes)
    if allowed_type == "any":
        return None
    if allowed_type in ("path", "dtype", "function", "null"):
        is_dtype = allowed_type != "dtype" or str(value).removeprefix("torch.") in dtypes
        fits = value is None if allowed_type in ("null", "function") else isinstance(value, str) and is_dtype
    elif isinstance(value, bool):
        fits = allowed_type == "bool"
    else:
        is_whole = allowed_type == "int" and isinstance(value, float) and value.is_integer()
        is_number = allowed_type == "float" and isinstance(value, int)
        fits = isinstance(value, _KINDS[allowed_type]) or is_whole or is_number
    return None if fits else _NAMES[allowed_type]


def _why_unfit_composed(value: Any, allowed_type: Mapping[str, Any], dtypes: Collection[str]) -> str | None:
    if "one_of" in allowed_type:
        reasons = [_why_unfit(value, option, dtypes) for option in allowed_type["one_of"]]
        return None if None in reasons else " or ".join(dict.fromkeys(reason for reason in reasons if reason))
    if "names" in allowed_type:
        names = allowed_type["names"]
        return None if value is None or _is_among(value, names) else ", ".join(map(str, names))
    if "list" in allowed_type:
        if not isinstance(value, (list, tuple)):
            return "a list"
        return next(filter(None, (_why_unfit(item, allowed_type["list"], dtypes) for item in value)), None)
    return None if isinstance(value, Mapping) else f"fields of {allowed_type['object'].rpartition('.')[2]}"


def _is_among(value: Any, names: list[Any]) -> bool:
    return any(value == name and type(value) is type(name) for name in names)
