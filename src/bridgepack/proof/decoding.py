"""Text of an artifact's tokens, through the tokenizer that its manifest names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import text_of, tokenizer_of


def decoder_of(artifact: Artifact) -> Callable[[Sequence[int]], str]:
    """Return what makes text of ids; ids in square brackets where the tokenizer cannot be loaded."""
    tokenizer, _ = tokenizer_of(artifact)
    return lambda ids: text_of(ids, tokenizer)
