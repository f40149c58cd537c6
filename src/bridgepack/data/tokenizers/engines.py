"""Engines that turn texts into ids: `tokenizers`, the reference, and two much faster ones."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import TokenArray

REFERENCE = "tokenizers"


class FlatIds(NamedTuple):
    """Ids of several texts, concatenated."""

    input_ids: TokenArray  #: shape [num_tokens], int32
    offsets: IntArray  #: shape [num_texts + 1], int64; text i has `input_ids[offsets[i]:offsets[i + 1]]`


class Engine(NamedTuple):
    """A function that encodes texts without adding special tokens, and its name in the recipe."""

    name: str
    encode_flat: Callable[[Sequence[str]], FlatIds]


class EngineReport(NamedTuple):
    """The engine that a build uses, and a message for the user; None if the engine is the one the recipe asks for."""

    name: str
    message: str | None = None


class EngineDiffersError(DataError):
    """A fast engine's ids differ from those of `tokenizers` for a row of the data."""


class EngineError(Exception):
    """An engine that is not installed, or cannot load this tokenizer; the message says which."""


def reference_engine(backend: Any) -> Engine:
    """Return a `tokenizers.Tokenizer` as an engine."""

    def encode(texts: Sequence[str]) -> FlatIds:
        return joined([found.ids for found in backend.encode_batch_fast(list(texts), add_special_tokens=False)])

    return Engine(REFERENCE, encode)


def load_engine(name: str, tokenizer_json: bytes) -> Engine:
    """Return a fast engine, loaded with a tokenizer.json.

    Raises:
        EngineError: it is not installed or cannot load the tokenizer.
    """
    try:
        return Engine(name, FAST_ENGINES[name](tokenizer_json))
    except ImportError as error:
        raise EngineError(f"{name} is not installed ({error})") from None
    except Exception as error:  # each engine raises its own errors for unsupported tokenizers
        raise EngineError(f"{name} cannot load this tokenizer: {' '.join(str(error).split())[:200]}") from None


def joined(parts: Sequence[Any]) -> FlatIds:
    """Return the ids of several texts, concatenated: [[5, 6], [7]] -> [5, 6, 7] and offsets [0, 2, 3]."""
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    ids = np.empty(int(offsets[-1]), dtype=np.int32)
    for part, start, stop in zip(parts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        ids[start:stop] = part
    return FlatIds(ids, offsets)


def _gigatoken(tokenizer_json: bytes) -> Callable[[Sequence[str]], FlatIds]:
    """Return a function that encodes one text at a time on the calling thread."""
    from gigatoken.gigatoken_rs import load_hf_json

    encode_one = load_hf_json(tokenizer_json).encode
    return lambda texts: joined([encode_one(text) for text in texts])


def _fastokens(tokenizer_json: bytes) -> Callable[[Sequence[str]], FlatIds]:
    """Return a function that encodes with RAYON_NUM_THREADS threads, started on first use."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in ("false", "0", "off", "no"):
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_json_str(tokenizer_json.decode())

    def encode(texts: Sequence[str]) -> FlatIds:
        ids, offsets = tokenizer.encode_batch_flat(list(texts), add_special_tokens=False)
        return FlatIds(
            np.frombuffer(ids, dtype="<u4").astype(np.int32), np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        )

    return encode


#: Engines by name, in the order in which they are tried. gigatoken loads in a third of fastokens' time and starts no
#: threads, so that processes can be forked after loading it.
FAST_ENGINES = {"gigatoken": _gigatoken, "fastokens": _fastokens}
