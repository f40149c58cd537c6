"""The fingerprint: a sha256 of everything that can change a row."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.records.manifests import InputRecord, Manifest

#: A tokenizer's name does not change rows; the contents of its files do.
TOKENIZER_NAMES = frozenset({"name_or_path", "revision"})
#: Settings of the host's loader, which do not change rows, and values that `resolved` has with their inputs.
_NOT_IN_ROWS = frozenset({"mode", "pad_cu_seqlens", "balance"})
#: Newer fields of preprocessing, with the values that equal the behaviour before they existed.
YOUNGER_DEFAULTS = (("reasoning_loss", "keep"),)
#: A source's fields about its rows and how often they are used.
_USES = ("columns", "kind", "max_rows", "weight", "epochs")


def fingerprint_of(
    *,
    format_version: int,
    versions: Mapping[str, str],
    inputs: Mapping[str, Sequence[InputRecord]],
    tokenizer: Mapping[str, Any],
    recipe: Mapping[str, Any],
    resolved: Mapping[str, Any],
) -> str:
    """Return the fingerprint, hexadecimal; the same on every machine.

    Args:
        format_version: version of the artifact's layout.
        versions: versions of bridgepack and the libraries that can change a row.
        inputs: split -> its input files, in order; only their bytes count, not their paths.
        tokenizer: `ChatTokenizer.identity()`, as in `Manifest.tokenizer`.
        recipe: every field, as in `Manifest.recipe`; of name, batch and topology, only the resulting multiple counts.
        resolved: derived values, as in `Manifest.resolved`.
    """
    data = _part(recipe, "data")
    content = {
        "format_version": format_version,
        "versions": dict(versions),
        "inputs": {split: [record.sha256 for record in records] for split, records in inputs.items()},
        "tokenizer": {key: value for key, value in tokenizer.items() if key not in TOKENIZER_NAMES},
        "preprocessing": {
            name: value
            for name, value in _part(recipe, "preprocessing").items()
            if (name, value) not in YOUNGER_DEFAULTS
        },
        "packing": {key: value for key, value in _part(recipe, "packing").items() if key not in _NOT_IN_ROWS},
        "resolved": {name: _part(resolved, name).get("value") for name in resolved},
        "role_aliases": data.get("role_aliases"),
        "validation_fraction": data.get("validation_fraction"),
        **{name: data[name] for name in ("max_row_bytes",) if name in data},
        **{name: data[name] for name in ("deduplicate",) if data.get(name, "none") != "none"},
    }
    uses = {split: [_use(source) for source in _listed(data.get(split))] for split in ("train", "validation")}
    if any(map(any, uses.values())):
        of_files = {split: [record.source for record in records] for split, records in inputs.items()}
        content["mixture"] = {"sources": uses, "source_of_files": of_files, "settings": data.get("mixture")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _use(source: Any) -> dict[str, Any]:
    """Return the fields of a recipe's source without its location."""
    section = source if isinstance(source, Mapping) else {}
    parts = [_use(part) for part in section.get("sources") or ()]
    own = {name: section[name] for name in _USES if section.get(name)}
    return own | ({"sources": parts} if own or any(parts) else {})


def _listed(sources: Any) -> Sequence[Any]:
    return sources if isinstance(sources, (list, tuple)) else [sources]


def fingerprint_of_manifest(manifest: Manifest) -> str:
    """Return the fingerprint computed from a manifest's content; differs from its own if it was changed."""
    splits = manifest.splits
    if _part(manifest.recipe, "data").get("validation_fraction"):
        splits = splits[:1]  # both splits come from the same files
    return fingerprint_of(
        format_version=manifest.format_version,
        versions=manifest.versions,
        inputs={split.name: split.inputs for split in splits},
        tokenizer=manifest.tokenizer,
        recipe=manifest.recipe,
        resolved=manifest.resolved,
    )


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = values.get(name)
    return part if isinstance(part, Mapping) else {}
