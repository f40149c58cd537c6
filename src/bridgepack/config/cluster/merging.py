"""Lays plain values over others, and sets one by its dotted path."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from bridgepack.config.errors import unknown_path_error
from bridgepack.config.section import Section
from bridgepack.errors import ConfigError


def written(section: Section) -> dict[str, Any]:
    """Return what was written by the user, without the defaults."""
    return section.model_dump(mode="python", exclude_unset=True, by_alias=True)


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with those of `over` laid over them, section by section.

    Another `kind` begins anew, and another class of `kind: nemo_run`.

    `{kind: slurm, time: 60, env_vars: {A: 1}}` and `{env_vars: {B: 2}}` give
    `{kind: slurm, time: 60, env_vars: {A: 1, B: 2}}`.
    """
    if "kind" in over and over["kind"] != values.get("kind"):
        return copy.deepcopy(dict(over))
    if values.get("kind") == "nemo_run" and over.get("class", values.get("class")) != values.get("class"):
        return copy.deepcopy({"kind": "nemo_run", **over})
    result = copy.deepcopy(dict(values))
    for name, value in over.items():
        below = result.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[name] = merged(below, value)
        else:
            result[name] = copy.deepcopy(value)
    return result


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values with some set by dotted path; a path goes before those below it, a `kind` before the rest.

    Raises:
        ConfigError: a path leads below a plain value.
    """
    result = copy.deepcopy(dict(values))
    for path in sorted(changes, key=lambda path: (path.count("."), not path.endswith(".kind"))):
        *sections, leaf = path.split(".")
        if not all([*sections, leaf]):
            raise ConfigError(f"{path!r} is no path of a field; allowed: names with dots, e.g. executor.nodes.")
        node: Any = result
        for index, section in enumerate(sections):
            if node.get(section) is None:
                node[section] = {}
            node = node[section]
            if not isinstance(node, dict):
                raise unknown_path_error(path, ".".join([*sections[: index + 1], leaf]), node)
        if leaf == "kind" and node.get("kind") != changes[path]:
            node.clear()
        node[leaf] = copy.deepcopy(changes[path])
    return result
