"""Text of an artifact's tokens, through the tokenizer that its manifest names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridgepack.config.data import TokenizerConfig
from bridgepack.data.artifact import Artifact
from bridgepack.data.tokenizer_loading import load_tokenizer
from bridgepack.errors import TokenizerError


def decoder_of(artifact: Artifact) -> Callable[[Sequence[int]], str]:
    """Return what makes text of ids; ids in square brackets where the tokenizer cannot be loaded."""
    known = artifact.manifest.tokenizer
    config = TokenizerConfig(
        name_or_path=str(known["name_or_path"]),
        revision=known.get("revision"),
        loader=known.get("loader", "transformers"),
    )
    try:
        return load_tokenizer(config).decode
    except TokenizerError:
        return _as_numbers


def _as_numbers(ids: Sequence[int]) -> str:
    return " ".join(f"[{token}]" for token in ids)
