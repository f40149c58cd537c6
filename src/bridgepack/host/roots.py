"""The package that the host's modules are imported from: a fact of each release, named in this module alone.

Canonical names of modules and classes have the package of 0.6. Facts and saved configs are read under them, whatever
package they name; what is imported, printed or written has the package of the release.
"""

from collections.abc import Collection, Mapping
from typing import Any

#: Package of 0.6.
CANONICAL = "megatron.bridge"


def canonical_name_of(path: str) -> str:
    """Return the canonical dotted name of a module or class, for its path below the package."""
    return f"{CANONICAL}.{path}"


def is_within(name: str, package: str) -> bool:
    """Return whether a dotted name is that of a package, or of something in it."""
    return name == package or name.startswith(f"{package}.")


def below(name: str, package: str) -> str:
    """Return the path of a dotted name below a package; the name itself if it is not in it."""
    return name.removeprefix(f"{package}.")


def in_package(name: str, package: str, new_package: str) -> str:
    """Return a dotted name, with another package if it is in the first one.

    Example: `megatron.bridge.peft.lora.LoRA` from `megatron.bridge` to `host` -> `host.peft.lora.LoRA`.
    """
    return new_package + name[len(package) :] if is_within(name, package) else name


def package_in(values: Any, packages: Collection[str]) -> str | None:
    """Return the package that the classes of a saved config are in: the first name decides; None if it is none of them.

    Args:
        values: settings in plain values.
        packages: the packages of all releases.
    """
    if not isinstance(values, Mapping):
        return None
    target = values.get("_target_")
    names = [package for package in packages if isinstance(target, str) and is_within(target, package)]
    if names:
        return max(names, key=len)
    return next(filter(None, (package_in(value, packages) for value in values.values())), None)
