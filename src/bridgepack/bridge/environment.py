"""The environment of a run: of this interpreter, or from a file that lists installed distributions."""

import json
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from bridgepack.errors import ConfigError
from bridgepack.rules.judging.subject import Environment
from bridgepack.user_files import read_text, reason_of

#: What `environment_from_file` reads, for messages.
READABLE = "the output of pip freeze, pip list --format json, uv pip list --format json or conda list --json"
#: What conda, or the folder of a checkout, calls a distribution -> its name.
_OTHER_NAMES: Mapping[str, str] = {"pytorch": "torch", "megatron-lm": "megatron-core"}

_EGG = re.compile(r"[#&]egg=(?P<name>[A-Za-z0-9._-]+)")
_EDITABLE_NOTE = re.compile(r"^# Editable .*\((?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s)]+)\)")
#: What may follow a requirement: a comment, options, a line that goes on.
_BEHIND = re.compile(r"\s+(?:#|--|\\)")
#: A distribution is there, but the line does not tell its version.
_UNKNOWN_VERSION = "unknown"


@cache
def environment_here() -> Environment:
    """Return the environment of this interpreter; nothing is imported, and the listing is cached."""
    versions: dict[str, str] = {}
    for distribution in distributions():
        metadata = distribution.metadata
        if metadata["Name"]:
            versions.setdefault(canonicalize_name(metadata["Name"]), metadata["Version"])
    return Environment(
        versions=versions, python=platform.python_version(), origin=f"Python {platform.python_version()} here"
    )


def environment_from_file(path: Path) -> Environment:
    """Return the environment that a file lists.

    `megatron-core==0.19.2` and `megatron-core @ file:///wheels/megatron_core-0.19.2-cp312-cp312-linux_x86_64.whl` both
    give megatron-core 0.19.2. A distribution from a repository or a folder counts as installed, of an unknown
    version. Comments, options and requirements without a version are ignored.

    Raises:
        ConfigError: the file cannot be read, or lists no distribution with its version.
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--environment is {str(path)!r}, which cannot be read: {reason_of(error)}. Allowed: here, or a file "
            f"with {READABLE}."
        ) from error
    versions, python = _from_json(text) if text.lstrip().startswith(("[", "{")) else (dict(_from_lines(text)), None)
    if not any(version != _UNKNOWN_VERSION for version in versions.values()):
        raise ConfigError(
            f"--environment is {str(path)!r}, which lists no distribution with its version. Allowed: here, or a file "
            f"with {READABLE}. Write it with: pip freeze > environment.txt"
        )
    return Environment(versions=versions, python=python, origin=str(path))


def _from_json(text: str) -> tuple[dict[str, str], str | None]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}, None
    rows = [row for row in content if isinstance(row, dict)] if isinstance(content, list) else []
    pairs = {_distribution(str(row["name"])): str(row["version"]) for row in rows if {"name", "version"} <= row.keys()}
    return pairs, pairs.pop("python", None)


def _distribution(name: str) -> str:
    return _OTHER_NAMES.get(canonicalize_name(name), canonicalize_name(name))


def _from_lines(text: str) -> Iterator[tuple[str, str]]:
    editable: tuple[str, str] | None = None
    for raw in text.splitlines():
        line = raw.strip()
        note = _EDITABLE_NOTE.match(line)
        pair = _line_pair(line) if editable is None or not _is_editable(line) else editable
        editable = (note["name"], note["version"]) if note else None
        if pair is not None:
            yield _distribution(pair[0]), pair[1]


def _line_pair(line: str) -> tuple[str, str] | None:
    if line.startswith("#"):
        return None
    if _is_editable(line):
        egg = _EGG.search(line)
        return egg["name"] if egg else re.split(r"[/\\]", line.rstrip("/\\"))[-1], _UNKNOWN_VERSION
    try:
        requirement = Requirement(_BEHIND.split(line)[0])
    except InvalidRequirement:
        return None
    if requirement.url:
        return requirement.name, _version_in(requirement.url)
    exact = (specifier.version for specifier in requirement.specifier if specifier.operator in ("==", "==="))
    return next(((requirement.name, text) for text in exact if not text.endswith("*")), None)


def _is_editable(line: str) -> bool:
    return line.startswith(("-e ", "--editable"))


def _version_in(place: str) -> str:
    """Return the version in the name of a wheel or source archive: `x-1.2-py3-none-any.whl` -> `1.2`."""
    file_name = unquote(urlsplit(place).path.rpartition("/")[2])
    parse = parse_wheel_filename if file_name.endswith(".whl") else parse_sdist_filename
    try:
        return str(parse(file_name)[1])
    except ValueError:
        return _UNKNOWN_VERSION
