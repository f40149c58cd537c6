"""Engines that turn texts into ids: `tokenizers`, which is the reference, and two that are much faster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import TokenArray

#: Engines by name, the one that is tried first first. gigatoken loads in a third of fastokens' time and starts no
#: threads, so that processes may be forked after it is loaded.
FAST_ENGINES = ("gigatoken", "fastokens")
REFERENCE = "tokenizers"


class FlatIds(NamedTuple):
    """Ids of several texts, one after the other.

    Attributes:
        input_ids: shape [num_tokens], int32.
        offsets: shape [num_texts + 1], int64; text i has `input_ids[offsets[i]:offsets[i + 1]]`.
    """

    input_ids: TokenArray
    offsets: IntArray


class Engine(Protocol):
    """Encodes texts without any token that the tokenizer would add by itself."""

    @property
    def name(self) -> str:
        """Name in the recipe."""
        ...

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        ...


class EngineReport(NamedTuple):
    """Which engine a build uses.

    Attributes:
        name: of the engine.
        message: what to tell the user, once; None where everything is as the recipe says.
    """

    name: str
    message: str | None = None


class EngineDiffersError(DataError):
    """A fast engine gave other ids than `tokenizers` for a row of the data."""


class EngineError(Exception):
    """An engine that is not installed, or cannot load this tokenizer; the message says which."""


class ReferenceEngine:
    """`tokenizers` itself."""

    name = REFERENCE

    def __init__(self, backend: Any) -> None:
        """Take a `tokenizers.Tokenizer`."""
        self._backend = backend

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return joined([encoding.ids for encoding in encodings])


class PythonEngine:
    """A tokenizer of transformers that is written in Python."""

    name = REFERENCE

    def __init__(self, tokenizer: Any) -> None:
        """Take an object with `encode`."""
        self._tokenizer = tokenizer

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        return joined([self._tokenizer.encode(text) for text in texts])


class GigatokenEngine:
    """gigatoken, one text at a time on the calling thread."""

    name = "gigatoken"

    def __init__(self, tokenizer_json: bytes) -> None:
        """Load a tokenizer.json.

        Raises:
            EngineError: when gigatoken is not installed or cannot load it.
        """
        try:
            from gigatoken.gigatoken_rs import load_hf_json
        except ImportError as error:
            raise EngineError(f"gigatoken is not installed ({error})") from None
        self._encode = _loaded("gigatoken", load_hf_json, tokenizer_json).encode

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        return joined([self._encode(text) for text in texts])


class FastokensEngine:
    """fastokens; it makes a pool of threads when it is first used, as many as RAYON_NUM_THREADS says."""

    name = "fastokens"

    def __init__(self, tokenizer_json: bytes) -> None:
        """Load a tokenizer.json.

        Raises:
            EngineError: when fastokens is not installed or cannot load it.
        """
        if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in ("false", "0", "off", "no"):
            os.environ.setdefault("RAYON_NUM_THREADS", "1")
        try:
            from fastokens import Tokenizer
        except ImportError as error:
            raise EngineError(f"fastokens is not installed ({error})") from None
        self._tokenizer = _loaded("fastokens", Tokenizer.from_json_str, tokenizer_json.decode())

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts), add_special_tokens=False)
        return FlatIds(
            np.frombuffer(ids, dtype="<u4").astype(np.int32), np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        )


def load_engine(name: str, tokenizer_json: bytes) -> Engine:
    """Return a fast engine that has loaded a tokenizer.json.

    Raises:
        EngineError: when it is not installed or cannot load it.
    """
    return GigatokenEngine(tokenizer_json) if name == "gigatoken" else FastokensEngine(tokenizer_json)


def joined(parts: Sequence[Any]) -> FlatIds:
    """Return the ids of several texts as one: [[5, 6], [7]] -> [5, 6, 7] and offsets [0, 2, 3]."""
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    ids = np.empty(int(offsets[-1]), dtype=np.int32)
    for part, start, stop in zip(parts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        ids[start:stop] = part
    return FlatIds(ids, offsets)


def _loaded(name: str, load: Any, source: Any) -> Any:
    try:
        return load(source)
    except Exception as error:  # each engine raises its own kinds for tokenizers that it does not support
        raise EngineError(f"{name} cannot load this tokenizer: {' '.join(str(error).split())[:200]}") from None
