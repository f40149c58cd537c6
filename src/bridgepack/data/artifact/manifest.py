"""Manifest <-> manifest.json. The file is written last: a folder without it is not an artifact."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bridgepack.config.load import catalogue_target
from bridgepack.data.files import refuse_special, write_text
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import BalanceRecord, Manifest

MANIFEST_FILE = "manifest.json"
#: Version of the artifact's layout; part of every fingerprint. Others are refused: their recipes have fields that
#: no longer exist.
FORMAT_VERSION = 6
_CHECKSUM = "sha256"
#: What a path makes of `s3://`.
_OF_URL = re.compile(r"[a-z][a-z0-9+.-]+:/[^/]")


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Return the manifest with its checksum, after writing it; the artifact is then complete."""
    content = dataclasses.asdict(manifest)
    for split in content["splits"]:
        if split["skipped_files"] is None:
            del split["skipped_files"]  # so that the bytes are those of versions without it
        for source in split["sources"]:
            if source["num_packs"] is None:
                del source["num_packs"]
    if (sample := content["served"]) is not None:
        if not sample["num_rows_tried"]:
            del sample["num_rows_tried"], sample["num_rows_dropped"]
        if not sample["choices"]:
            del sample["choices"]
        if not sample["is_never_shown"]:
            del sample["is_never_shown"]
        if not sample["prompt_switch"]:
            del sample["prompt_switch"], sample["prompt_switch_value"], sample["is_prompt_switch_partial"]
    write_text(folder / MANIFEST_FILE, manifest_text(content))
    return dataclasses.replace(manifest, sha256=_checksum(content))


def manifest_text(content: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with its checksum."""
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=2, ensure_ascii=False) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    hashed_content = {name: value for name, value in content.items() if name != _CHECKSUM}
    return hashlib.sha256(json.dumps(hashed_content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_manifest(path: Path) -> bool:
    """Return whether a file is a manifest that any version of bridgepack wrote."""
    try:
        refuse_special(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"format_version", "fingerprint"} <= content.keys()


def read_manifest(folder: Path) -> Manifest:
    """Return an artifact's manifest; raises ArtifactError if it does not exist, or this version cannot read it."""
    path = folder / MANIFEST_FILE
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a regular file")
        text = path.read_bytes().decode("utf-8")
        content = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(_why_missing(folder)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}. Build the artifact again.") from None
    version = content.get("format_version") if isinstance(content, Mapping) else None
    if type(version) is not int or version != FORMAT_VERSION:
        raise ArtifactError(
            f"{path}: format_version is {version!r}; this bridgepack reads {FORMAT_VERSION}. "
            "Build the artifact again, or use the bridgepack that made it."
        )
    if text != manifest_text(content):
        raise ArtifactError(
            f"{path} was changed: it does not match its {_CHECKSUM}. Copy it again, or build the artifact again."
        )
    try:
        manifest: Manifest = _adapter(Manifest).validate_python(content)
        balance = manifest.resolved.get("balance")
        if balance is not None:
            _adapter(BalanceRecord).validate_python(balance.get("value") if isinstance(balance, Mapping) else None)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(f"{path}: {place}: {first['msg']}. Build the artifact again.") from None
    return manifest


@cache
def _adapter(record: type) -> TypeAdapter[Any]:
    """Return what reads a record; making it takes longer than reading one."""
    return TypeAdapter(record)


def _why_missing(folder: Path) -> str:
    if _OF_URL.match(str(folder)):
        readers = "check, diff, inspect, prove, report and trace"
        return f"{str(folder)!r} is in an object store; only {readers} can read there. Copy it to a local folder."
    if not folder.exists():
        return f"{str(folder)!r} does not exist. Give the folder of an artifact that `bridgepack build` wrote."
    if not folder.is_dir():
        return f"{str(folder)!r} is a file. Give the folder of an artifact that `bridgepack build` wrote."
    why = (
        f"{str(folder)!r} has no {MANIFEST_FILE}, so it is not an artifact: bridgepack did not build it, or the build "
        "did not finish. Build it with `bridgepack build RECIPE --output FOLDER`."
    )
    with suppress(ConfigError):
        why += f" This is the folder of that name; for the recipe, give {catalogue_target(str(folder))}."
    return why
