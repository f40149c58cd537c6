"""Settings under canonical names, those of 0.6, and under the names of a release: one table, read both ways."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.host.facts import copy_of
from bridgepack.host.release import HostRelease

#: Field of `dataset` before 0.6 -> what replaced it. 0.6 ignores the old names in silence.
FORMER_FIELDS: Mapping[str, str] = {
    "packed_sequence_specs": "enable_offline_packing and offline_packing_specs",
    "pack_sequences_in_batch": "enable_in_batch_packing",
}
#: Module before 0.6 -> the module that has its classes; both below the package of the host.
FORMER_MODULES: Mapping[str, str] = {"data.datasets.packed_sequence": "data.packing"}


def name_in(release: HostRelease, path: str) -> str:
    """Return the path of a setting in a release, for its canonical path.

    Example: `dataset.offline_packing_specs` renamed to `dataset.packing_specs` ->
    `dataset.offline_packing_specs.pad_seq_to_mult` is `dataset.packing_specs.pad_seq_to_mult`.
    """
    return _rename(path, release.renames)


def canonical_name(release: HostRelease, path: str) -> str:
    """Return the canonical path of a setting, for its path in a release; undoes `name_in`."""
    return _rename(path, {theirs: ours for ours, theirs in release.renames.items()})


def class_in(release: HostRelease, name: str) -> str:
    """Return the dotted name of a class in a release, for its canonical name."""
    return release.classes.get(name, name)


def in_canonical_names(values: Mapping[str, Any], release: HostRelease) -> tuple[dict[str, Any], dict[str, str]]:
    """Return settings under canonical names, and canonical path -> path in the release for those that were moved.

    A setting that already stands under its canonical name is kept.

    Args:
        values: section -> plain values; not changed.
        release: whose names they have.
    """
    if not (release.renames or release.classes or release.values):
        return dict(values), {}
    return move_to_canonical_names(copy_of(dict(values)), release)


def move_to_canonical_names(values: dict[str, Any], release: HostRelease) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the same as `in_canonical_names` without a copy: `values` are changed."""
    for path, canonical in release.values.items():
        holder, name = _holder(values, path)
        value = None if holder is None else holder.get(name)
        if holder is not None and isinstance(value, str) and value in canonical:
            holder[name] = canonical[value]
    paths: dict[str, str] = {}
    for ours, theirs in release.renames.items():
        value = _take(values, theirs, ours)
        if value is not _NONE:
            paths |= {ours + below: theirs + below for below in ("", *_paths_below(value))}
    classes = {theirs: ours for ours, theirs in release.classes.items()}
    return (_with_classes(values, classes) if classes else values), paths


_NONE = object()


def _take(values: dict[str, Any], theirs: str, ours: str) -> Any:
    """Move one setting to another path and return it, or `_NONE` if there is none or the place is taken."""
    source, name = _holder(values, theirs)
    if source is None or name not in source:
        return _NONE
    target, new_name = _holder(values, ours, make=True)
    if target is None or new_name in target:
        return _NONE
    target[new_name] = source.pop(name)
    return target[new_name]


def _holder(values: dict[str, Any], path: str, *, make: bool = False) -> tuple[dict[str, Any] | None, str]:
    *above, name = path.split(".")
    node: Any = values
    for part in above:
        if make and part not in node:
            node[part] = {}
        node = node.get(part)
        if not isinstance(node, dict):
            return None, name
    return node, name


def _paths_below(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield f".{name}"
            yield from (f".{name}{below}" for below in _paths_below(inner))


def _with_classes(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: names.get(inner, inner)
            if key == "_target_" and isinstance(inner, str)
            else _with_classes(inner, names)
            for key, inner in value.items()
        }
    return [_with_classes(item, names) for item in value] if isinstance(value, list) else value


def _rename(path: str, names: Mapping[str, str]) -> str:
    for start, name in names.items():
        if path == start or path.startswith(f"{start}."):
            return name + path[len(start) :]
    return path
