"""The fingerprint: a sha256 of everything that can change a row."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from bridgepack import __version__
from bridgepack.config.recipe.recipe import ResolvedRecipe
from bridgepack.data.artifact.manifest import FORMAT_VERSION
from bridgepack.records import InputRecord
from bridgepack.records.manifests import fingerprint_of

#: Libraries whose version can change a token, a rendered text or a shard's bytes.
_LIBRARIES = ("jinja2", "pyarrow", "tokenizers", "transformers")


def library_versions() -> dict[str, str]:
    """Return bridgepack's version and those of the libraries that can change a row."""
    return {"bridgepack": __version__, **{name: version(name) for name in _LIBRARIES}}


def fingerprint(
    resolved: ResolvedRecipe,
    tokenizer: Mapping[str, Any],
    inputs: Mapping[str, Sequence[InputRecord]],
    *,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Return the fingerprint, hexadecimal; the same on every machine.

    Args:
        resolved: the recipe; of its name, batch and topology, only the resulting multiple counts.
        tokenizer: `ChatTokenizer.identity()`.
        inputs: split -> its input files, in order; only their bytes count, not their paths.
        versions: library -> version, for libraries that make rows; by default those installed.
    """
    assert (resolved.balance is None) == (resolved.recipe.packing.balance.kind == "none")
    return fingerprint_of(
        format_version=FORMAT_VERSION,
        versions=versions or library_versions(),
        inputs=inputs,
        tokenizer=tokenizer,
        recipe=resolved.recipe.model_dump(mode="json"),
        resolved=resolved.explain(),
    )
