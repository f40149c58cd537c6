"""The fingerprint of an artifact, from its recipe, its inputs and its tokenizer, or from its manifest."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.recipe.data import DataConfig, DataSource
from bridgepack.config.recipe.preprocessing import PREPROCESSING_KINDS
from bridgepack.config.section import Section, without_younger, younger_fields
from bridgepack.records import InputRecord, Manifest
from bridgepack.records.manifests import TOKENIZER_NAMES

#: Fields of `packing` for the host's loader, which change no rows, and values that `resolved` has with their inputs.
NOT_IN_ROWS = frozenset({"mode", "pad_cu_seqlens", "balance"})
#: Fields of data about rows, and of a source about its rows and how often they are used; younger ones name themselves.
_OF_DATA = ("role_aliases", "validation_fraction")
_USES = ("max_rows", "weight", "epochs")


def fingerprint_of(
    *,
    format_version: int,
    versions: Mapping[str, str],
    inputs: Mapping[str, Sequence[InputRecord]],
    tokenizer: Mapping[str, Any],
    recipe: Mapping[str, Any],
    resolved_values: Mapping[str, Any],
    has_validation_sets: bool = False,
) -> str:
    """Return the fingerprint, hexadecimal, of values as in `Manifest`; the same on every machine.

    Of the inputs only their bytes count, not their paths; of the recipe's name, batch and topology, only the resulting
    multiple.
    """
    data, preprocessing = _part(recipe, "data"), _part(recipe, "preprocessing")
    content = {
        "format_version": format_version,
        "versions": dict(versions),
        "inputs": {split: [record.sha256 for record in records] for split, records in inputs.items()},
        "tokenizer": {key: value for key, value in tokenizer.items() if key not in TOKENIZER_NAMES},
        "preprocessing": without_younger(PREPROCESSING_KINDS.get(str(preprocessing.get("kind"))), preprocessing),
        "packing": {key: value for key, value in _part(recipe, "packing").items() if key not in NOT_IN_ROWS},
        "resolved": {name: _part(resolved_values, name).get("value") for name in resolved_values},
        **{name: data.get(name) for name in _OF_DATA},
        **{name: data[name] for name in ("max_row_bytes",) if name in data},
        **_younger(DataConfig, data),
        **({"validation_sets": True} if has_validation_sets else {}),
    }
    uses = {split: [_use(source) for source in _as_sequence(data.get(split))] for split in ("train", "validation")}
    if any(map(any, uses.values())):
        of_files = {split: [record.source for record in records] for split, records in inputs.items()}
        content["mixture"] = {"sources": uses, "source_of_files": of_files, "settings": data.get("mixture")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _use(source: Any) -> dict[str, Any]:
    """Return the fields of a recipe's source without its location."""
    section = source if isinstance(source, Mapping) else {}
    parts = [_use(part) for part in section.get("sources") or ()]
    settings = {name: section[name] for name in _USES if section.get(name)} | _younger(DataSource, section)
    return settings | ({"sources": parts} if settings or any(parts) else {})


def _younger(section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the younger fields of a section whose values differ from the behaviour before they existed."""
    return {
        name: values[name] for name, before in younger_fields(section).items() if values.get(name, before) != before
    }


def _as_sequence(sources: Any) -> Sequence[Any]:
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
        resolved_values=manifest.resolved,
        # older packs of the same recipe mix the sets
        has_validation_sets=any(source.num_packs is not None for split in splits for source in split.sources),
    )


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = values.get(name)
    return part if isinstance(part, Mapping) else {}
