"""Special tokens that Megatron-Core's wrapper fills in, and the flags of added tokens that this takes away."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from bridgepack.records.flags import LostFlags

#: Special token that a tokenizer may lack -> the one that stands in for it.
_STAND_INS = {
    "sep_token": "eos_token",
    "eos_token": "sep_token",
    "bos_token": "cls_token",
    "cls_token": "bos_token",
}
#: Flags of an added token that change the tokens around it.
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
#: What may stand before a token, and behind it.
_BEFORE, _BEHIND = ("", "x", "x ", "x\n"), ("", "x", " x", "\nx")


def fill_special_tokens(tokenizer: Any) -> tuple[LostFlags, ...]:
    """Set the special tokens that Megatron-Core's wrapper fills in, which templates can see.

    Returns those whose flags it thereby changes, if texts get other tokens: an added token that is set by its text
    alone loses its flags.

    Source: megatron-core 0.19.2, core/tokenizers/text/libraries/huggingface_tokenizer.py.
    """
    tokens = tokenizer.special_tokens_map
    names = ((name, source) for name, source in _STAND_INS.items() if name not in tokens and source in tokens)
    stand_ins = {name: tokens[source] for name, source in names}
    if not stand_ins:
        return ()
    flags = _flags_of(tokenizer, set(stand_ins.values()))
    ids = {token: _ids_around(tokenizer, token) for token in flags}
    tokenizer.add_special_tokens(stand_ins)
    return tuple(
        LostFlags(token=token, flags=names, names=tuple(name for name, text in stand_ins.items() if text == token))
        for token, names in flags.items()
        if _ids_around(tokenizer, token) != ids[token]
    )


def _flags_of(tokenizer: Any, texts: set[str]) -> Mapping[str, tuple[str, ...]]:
    """Return text -> flags of those added tokens that have some."""
    tokens = (token for token in tokenizer.added_tokens_decoder.values() if str(token.content) in texts)
    flags = {str(token.content): tuple(name for name in _FLAGS if getattr(token, name)) for token in tokens}
    return {text: flags[text] for text in sorted(flags) if flags[text]}


def _ids_around(tokenizer: Any, token: str) -> list[list[int]]:
    """Return the ids of texts with a token between others."""
    texts = (f"{before}{token}{behind}" for before, behind in product(_BEFORE, _BEHIND))
    return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
