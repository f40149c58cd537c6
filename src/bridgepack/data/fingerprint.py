"""The fingerprint: a sha256 over everything that can change a row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from bridgepack import __version__
from bridgepack.config.recipe import ResolvedRecipe
from bridgepack.data.inputs import InputFile, hash_file
from bridgepack.data.manifest import FORMAT_VERSION
from bridgepack.records import InputRecord

#: Libraries whose version can change a token, a rendered text or a byte of a shard.
_LIBRARIES = ("jinja2", "pyarrow", "tokenizers", "transformers")
#: What a tokenizer is called does not change a row; what is in its files does.
_TOKENIZER_NAMES = frozenset({"name_or_path", "revision"})
#: Settings of the host's loader, which change no row.
_LOADER_SETTINGS = frozenset({"mode", "pad_cu_seqlens"})


def library_versions() -> dict[str, str]:
    """Return bridgepack's version and those of the libraries that can change a row."""
    return {"bridgepack": __version__, **{name: version(name) for name in _LIBRARIES}}


def input_record(file: InputFile) -> InputRecord:
    """Return a record of a file with its hash; the number of rows is filled in by the build.

    Raises:
        DataError: when it cannot be read.
    """
    return InputRecord(path=file.label, num_bytes=file.num_bytes, sha256=hash_file(file.path), num_rows=0)


def fingerprint(
    resolved: ResolvedRecipe,
    tokenizer: Mapping[str, Any],
    inputs: Mapping[str, Sequence[InputRecord]],
) -> str:
    """Return the fingerprint, hexadecimal; the same on every machine.

    Args:
        resolved: the recipe; its name, batch and topology count only through the multiple.
        tokenizer: `ChatTokenizer.identity()`.
        inputs: split -> its input files, in order; their paths do not count, their bytes do.
    """
    recipe = resolved.recipe
    content = {
        "format_version": FORMAT_VERSION,
        "versions": library_versions(),
        "inputs": {split: [record.sha256 for record in records] for split, records in inputs.items()},
        "tokenizer": {key: value for key, value in tokenizer.items() if key not in _TOKENIZER_NAMES},
        "preprocessing": recipe.preprocessing.model_dump(mode="json"),
        "packing": recipe.packing.model_dump(mode="json", exclude=set(_LOADER_SETTINGS)),
        "resolved": {name: entry["value"] for name, entry in resolved.explain().items()},
        "role_aliases": recipe.data.role_aliases,
        "validation_fraction": recipe.data.validation_fraction,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
