"""Reads vocabularies that are no JSON of `tokenizers`: pieces as a converted `tokenizer.json` has them, with their ids.

A file that does not list its special tokens is read where the configs beside it do.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bridgepack.user_files import MAX_LARGE_BYTES, read_bytes, read_text

#: A line of tiktoken's files: the bytes of a token, and its id.
_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s*")
_TEKKEN = "tekken.json"
#: Bytes that byte-level vocabularies write as they are, in Latin-1; others get the characters from 256 on.
#: Source: openai/gpt-2, src/encoder.py, bytes_to_unicode.
_PRINTED = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))


def slow_vocabulary(path: Path, *, lists_special_tokens: bool) -> Iterator[tuple[str, int]]:
    """Yield (piece, id) of a `tekken.json`, of tiktoken's lines, or of SentencePiece, where that is installed.

    Yields nothing if the file has another form, or would lack its special tokens.

    Raises:
        OSError, ValueError, LookupError, TypeError: the file cannot be read.
    """
    if path.name == _TEKKEN:
        yield from _tekken(json.loads(read_text(path, max_bytes=MAX_LARGE_BYTES)))
        return
    content = read_bytes(path, max_bytes=MAX_LARGE_BYTES)
    if _TIKTOKEN_LINE.match(content) is None:
        yield from _sentencepiece(content)
    elif lists_special_tokens:
        for line in filter(None, content.splitlines()):
            token, index = line.split()
            yield _byte_level(base64.b64decode(token)), int(index)


def _tekken(content: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the pieces of Mistral's file, in which special tokens come first, and of the others as many as it says.

    Source: mistralai/mistral-common, tokens/tokenizers/tekken.py; transformers, convert_slow_tokenizer.py.
    """
    if not content.get("special_tokens"):
        return
    num_special = content["config"]["default_num_special_tokens"]
    yield from ((token["token_str"], token["rank"]) for token in content["special_tokens"])
    for token in content["vocab"][: content["config"]["default_vocab_size"] - num_special]:
        yield _byte_level(base64.b64decode(token["token_bytes"])), token["rank"] + num_special


def _sentencepiece(content: bytes) -> Iterator[tuple[str, int]]:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return
    try:
        model = SentencePieceProcessor(model_proto=content)
    except RuntimeError:  # a file of another form
        return
    yield from ((model.IdToPiece(index), index) for index in range(model.GetPieceSize()))


def _byte_level(token: bytes) -> str:
    characters = _characters()
    return "".join(characters[byte] for byte in token)


@cache
def _characters() -> tuple[str, ...]:
    """Return the character of each byte in byte-level vocabularies."""
    stand_ins = iter(range(256, 512))
    return tuple(chr(byte) if byte in _PRINTED else chr(next(stand_ins)) for byte in range(256))
