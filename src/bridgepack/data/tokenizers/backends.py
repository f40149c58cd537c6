"""What the parts of a `tokenizers.Tokenizer` do to a text."""

import json
from collections.abc import Mapping
from typing import Any

#: Normalisers that only compose or decompose characters and leave ASCII unchanged.
_COMPOSING = frozenset({"NFC", "NFD", "NFKC", "NFKD"})


def keeps_bytes(backend: Any) -> bool:
    """Return whether the tokens of a `tokenizers.Tokenizer` are pieces of the text's bytes, without losing any.

    A normaliser may only compose or decompose characters, which leaves ASCII unchanged.
    """
    settings = {name: _state(getattr(backend, name)) for name in ("normalizer", "pre_tokenizer", "model", "decoder")}
    normalizers = _members(settings["normalizer"], "normalizers")
    splitters = _members(settings["pre_tokenizer"], "pretokenizers")
    return (
        settings["model"].get("type") == "BPE"
        and settings["decoder"].get("type") == "ByteLevel"
        and all(item.get("type") in _COMPOSING for item in normalizers)
        and any(item.get("type") == "ByteLevel" for item in splitters)
        and all(
            item.get("type") in ("ByteLevel", "Split", "Digits")
            and item.get("behavior") != "Removed"
            and not item.get("add_prefix_space")
            for item in splitters
        )
    )


def normalizes(backend: Any) -> bool:
    """Return whether a `tokenizers.Tokenizer` may change a text before it searches for tokens."""
    return bool(_members(_state(backend.normalizer), "normalizers"))


def _members(settings: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the parts of a sequence component, or the component itself in a list."""
    return list(settings[name]) if name in settings else [settings] if settings else []


def _state(part: Any) -> Mapping[str, Any]:
    """Return the settings of a tokenizer component; of a model only its type, because its vocabulary is large."""
    if part is None:
        return {}
    if hasattr(part, "tokenize"):
        return {"type": type(part).__name__}
    state: Mapping[str, Any] = json.loads(part.__getstate__())
    return state
