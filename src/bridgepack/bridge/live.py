"""Live ConfigContainers of the installed host: where they have a setting, its value, and copies of them."""

import copy
from collections.abc import Mapping
from typing import Any

from bridgepack.bridge.plain import holder_of, value_at
from bridgepack.bridge.shipped import installed_release
from bridgepack.host.names import name_in


def place_in(config: Any, path: str) -> str:
    """Return where a config has a setting: under its canonical path if it has that field, else under its release's.

    Models of one release can differ: `model.hf_model_id` is a field of providers, and an entry of
    `model.extra_checkpoint_metadata` in configs that are built from parts.
    """
    name_of_release = name_in(installed_release(), path)
    return path if name_of_release == path or _has(config, path) else name_of_release


def value_in(config: Any, path: str) -> Any:
    """Return the value at a canonical path of a config, or None if a section of the path is None or missing."""
    return value_at(config, place_in(config, path))


def has_setting(config: Any, path: str) -> bool:
    """Return whether a config has a setting, for its canonical path."""
    return _has(config, place_in(config, path))


def copy_of(config: Any) -> Any:
    """Return a deep copy of a ConfigContainer, whose sections have the classes that they have there.

    `copy.deepcopy` asks an object for `__deepcopy__`. A model that is built from parts answers with its transformer's,
    and the copy would be a transformer alone; such a section is copied field by field.
    """
    memo: dict[int, Any] = {}
    for section in vars(config).values():
        if hasattr(section, "__deepcopy__") and not hasattr(type(section), "__deepcopy__"):
            memo[id(section)] = _copied_by_fields(section, memo)
    return copy.deepcopy(config, memo)


def _copied_by_fields(section: Any, memo: dict[int, Any]) -> Any:
    section_copy = object.__new__(type(section))
    vars(section_copy).update({name: copy.deepcopy(value, memo) for name, value in vars(section).items()})
    return section_copy


def _has(config: Any, path: str) -> bool:
    above, _, leaf = path.rpartition(".")
    section = value_at(config, above) if above else config
    return leaf in section if isinstance(section, Mapping) else holder_of(section, leaf) is not None
