"""Which fields the installed host's own classes have, with their types and defaults.

They are read once for an installation, in a process that loads no config of a user, and kept in a file that is named by
the digest of the installed files. `python -m bridgepack.bridge.validating.fields VERSION FILE` is that process.
"""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.version import Version

from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.imports import import_by_name, import_host
from bridgepack.config.installed import installed_root
from bridgepack.errors import ConfigError
from bridgepack.host import BRIDGE, release_of
from bridgepack.rules.judging.facts import InstalledFields

#: Most seconds of reading; imports take 18 s of processor time.
_LIMIT_S = 300.0
#: Raised where this module writes other files.
_FORMAT = 1


def installed_fields(version: Version) -> InstalledFields | str:
    """Return the fields of the installed host's classes, or why they are not known; `version` is the one judged for."""
    version_here = environment_here().versions.get(BRIDGE)
    if version_here is None:
        return "megatron-bridge is not installed here"
    if Version(version_here).base_version != version.base_version:
        return f"the check is for megatron-bridge {version}, and {version_here} is installed here"
    path = path_of_fields()
    if not path.is_file() and (reason := _ask(version_here, path)):
        return reason
    try:
        return InstalledFields(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"


def keep_fields(version: str, path: Path) -> None:
    """Write the fields of the host's classes, which this process imports, to a file; whole or not at all."""
    content = {name: dict(_fields_of(kind)) for name, kind in _classes(version)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(content, file)
    Path(file.name).replace(path)


def path_of_fields() -> Path:
    """Return the file that keeps the fields of the installed host."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "bridgepack" / "host-fields" / f"{digest_of_host()}.json"


def digest_of_host() -> str:
    """Return a digest of the Python files of the host and its core: their places, sizes and times of change."""
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    for folder in (Path(place) for name in (installed_root(), "megatron.core") for place in _places_of(name)):
        for path in sorted(folder.rglob("*.py")):
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _places_of(package: str) -> Iterator[str]:
    spec = find_spec(package)
    yield from (spec.submodule_search_locations or ()) if spec is not None else ()


def _ask(version: str, path: Path) -> str:
    """Have a process write the file, and return why it could not; empty if it did."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", "bridgepack.bridge.validating.fields", version, str(path)],
        env={
            **os.environ,
            **{"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    last = process.stderr.strip().rpartition("\n")[2]
    return "" if path.is_file() else f"the process that reads the host's classes ended: {last or process.returncode}"


def _classes(version: str) -> Iterator[tuple[str, type]]:
    """Yield the classes of the release's facts that the installed host has, by their canonical names."""
    import_host()
    for name in release_of(version).facts.class_names:
        module, _, leaf = name.rpartition(".")
        try:
            kind = getattr(import_by_name(module), leaf, None)
        # A module of the host may fail in its own way, as where a kernel is missing; its classes are not known then.
        except Exception:
            continue
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield name, kind


def _fields_of(kind: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in dataclasses.fields(kind):
        default = field.default
        is_plain = default is None or isinstance(default, (bool, int, float, str))
        yield field.name, {"type": str(field.type), **({"default": default} if is_plain else {})}


if __name__ == "__main__":
    try:
        keep_fields(sys.argv[1], Path(sys.argv[2]))
    except ConfigError as error:
        sys.exit(str(error))
