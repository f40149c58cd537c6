"""Engines that turn texts into ids: `tokenizers`, the reference, and fastokens, much faster and compared with it."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import TokenArray

if TYPE_CHECKING:
    from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

REFERENCE, FAST = "tokenizers", "fastokens"
#: Input bytes below which loading a fast engine takes longer than it saves.
MIN_INPUT_BYTES = 8 << 20
#: Texts of a batch that are compared during a build, if the batch has at least this many.
_COMPARED, _MIN_TEXTS = 2, 16
#: fastokens starts this many threads when it first encodes; with 1 none, so that processes can be forked after that.
_THREADS = "FASTOKENS_BPE_THREADS"
_SLOWER = "tokenising with tokenizers, which is slower"
#: Texts on which engines are most likely to differ: scripts, spaces, long runs.
_TEXTS = (
    "The quick brown fox, it's 3.14159 and 1234567890 naïve café Straße Ünïcödé ﬁne",
    "你好，世界。日本語のテキスト 한국어 Русский язык עברית العربية हिन्दी ไทย ქართული Ελληνικά",
    "😀👍🏽👩‍👩‍👧🇩🇪 ☃️ e\u0301 \u00e9 A\u030a \ufb01 \u200b\u200d\ufeff \u2028\u2029 "
    "\x00\x07\x1b \u00a0x \U0001f9d1\u200d\U0001f4bb",
    'def f(x):\n    return {"a": [1, 2], \'b\': f"{x!r}"}  # TODO\n\n\nclass A_b2:\n\tpass\n<div class="x">&amp;</div>',
)
_SPACES = ("a b", "a  b", "a   b ", "\n\n\nx", " \n \n", "\t\tx\t y", "x \r\n\r\n y", " ", "  ", "\n", "\r", "\u3000x")
#: Code points from here on are private, unassigned, or tags of flags.
_NUM_CODE_POINTS = 0x40000
_LONG = ("a" * 5000, "ab" * 3000, "1" * 3000, " " * 3000, "\n" * 500, "!?" * 2000, "é" * 2000, "字" * 3000, "=" * 400)


class FlatIds(NamedTuple):
    """Ids of several texts, concatenated."""

    input_ids: TokenArray  #: shape [num_tokens], int32
    offsets: IntArray  #: shape [num_texts + 1], int64; text i has `input_ids[offsets[i]:offsets[i + 1]]`

    def split(self) -> list[TokenArray]:
        """Return the ids of each text."""
        return np.split(self.input_ids, self.offsets[1:-1])


class Engine(NamedTuple):
    """A function that encodes texts without adding special tokens, and its name in the recipe."""

    name: str
    encode_flat: Callable[[Sequence[str]], FlatIds]


class EngineReport(NamedTuple):
    """The engine that a build uses, and a message for the user; None if the engine is the one the recipe asks for."""

    name: str
    message: str | None = None


class EngineDiffersError(DataError):
    """The fast engine's ids differ from those of `tokenizers` for a row of the data, or it cannot encode the row."""


class EngineError(Exception):
    """The fast engine is not installed, or cannot load this tokenizer; the message says which."""


def reference_engine(backend: Any) -> Engine:
    """Return a `tokenizers.Tokenizer` as an engine."""

    def encode(texts: Sequence[str]) -> FlatIds:
        return join_ids([encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)])

    return Engine(REFERENCE, encode)


def load_engine(tokenizer_json: bytes) -> Engine:
    """Return the fast engine, loaded with a tokenizer.json; it encodes on the calling thread.

    Raises:
        EngineError: it is not installed or cannot load the tokenizer.
    """
    os.environ[_THREADS] = "1"
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # for single texts of more than 64 KiB
    try:
        from fastokens import Tokenizer
    except ImportError as error:
        raise EngineError(
            f"{FAST} is not installed ({error}). Install it, or set tokenizer.engine to tokenizers"
        ) from None
    with _failing_as(EngineError, f"{FAST} cannot load this tokenizer"):
        tokenizer = Tokenizer.from_json_str(tokenizer_json.decode())

    def encode(texts: Sequence[str]) -> FlatIds:
        with _failing_as(EngineDiffersError, f"tokenizer.engine: {FAST} cannot encode this data"):
            ids, offsets = tokenizer.encode_batch_flat(list(texts), add_special_tokens=False)
        return FlatIds(
            np.frombuffer(ids, dtype="<u4").astype(np.int32), np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        )

    return Engine(FAST, encode)


@contextmanager
def _failing_as(kind: type[Exception], problem: str) -> Iterator[None]:
    """Raise the engine's errors as `kind`; its panics are no `Exception`."""
    try:
        yield
    except BaseException as error:  # it raises errors of several kinds for tokenizers that it does not support
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise kind(f"{problem}: {' '.join(str(error).split())[:200]}") from None


def join_ids(parts: Sequence[Any]) -> FlatIds:
    """Return the ids of several texts, concatenated: [[5, 6], [7]] -> [5, 6, 7] and offsets [0, 2, 3]."""
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    ids = np.empty(int(offsets[-1]), dtype=np.int32)
    for part, start, stop in zip(parts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        ids[start:stop] = part
    return FlatIds(ids, offsets)


def reference_where_unicode_differs(engine: Engine, reference: Engine) -> Engine:
    """Return an engine that encodes texts with characters on which versions of Unicode disagree as the reference does.

    Each release follows a version of its own: `tokenizers` 0.22 orders marks as Unicode 9 does.
    """

    def encode(texts: Sequence[str]) -> FlatIds:
        flat = engine.encode_flat(texts)
        indices = [index for index, text in enumerate(texts) if not text.isascii() and _is_disputed(text)]
        if not indices:
            return flat
        parts = flat.split()
        for index, ids in zip(indices, reference.encode_flat([texts[i] for i in indices]).split(), strict=True):
            parts[index] = ids
        return join_ids(parts)

    return Engine(engine.name, encode)


def _is_disputed(text: str) -> bool:
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return bool(_disputed_characters()[np.minimum(codes, _NUM_CODE_POINTS - 1)].any())


@lru_cache(maxsize=1)
def _disputed_characters() -> npt.NDArray[np.bool_]:
    """Return which characters are unassigned, or have an order or a decomposition that Unicode 3.2 lacks.

    Shape [_NUM_CODE_POINTS]. Unassigned is what Unicode 15.0, that of Python 3.12, lacks: no engine is older there.
    """
    old, is_disputed = unicodedata.ucd_3_2_0, np.zeros(_NUM_CODE_POINTS, dtype=np.bool_)
    for code in range(_NUM_CODE_POINTS):
        character = chr(code)
        parts = unicodedata.decomposition(character)
        if unicodedata.category(character) == "Cn" or unicodedata.combining(character) != old.combining(character):
            is_disputed[code] = True
        elif parts != old.decomposition(character):
            is_disputed[code] = True
            if " " in parts and not parts.startswith("<"):  # its parts are composed, too
                is_disputed[[int(part, 16) for part in parts.split()]] = True
    return is_disputed


def checked_engine(engine: Engine, reference: Engine) -> Engine:
    """Return an engine that compares a few of its results per batch with `tokenizers`.

    It raises `EngineDiffersError` if they differ.
    """

    def encode(texts: Sequence[str]) -> FlatIds:
        flat = engine.encode_flat(texts)
        if len(texts) >= _MIN_TEXTS:
            indices = [len(texts) * number // _COMPARED for number in range(_COMPARED)]
            reference_ids = reference.encode_flat([texts[index] for index in indices])
            engine_ids = [flat.input_ids[flat.offsets[index] : flat.offsets[index + 1]] for index in indices]
            if not np.array_equal(np.concatenate(engine_ids), reference_ids.input_ids):
                raise EngineDiffersError(
                    f"tokenizer.engine: {engine.name} and tokenizers give different tokens for this data. Set it to "
                    "tokenizers."
                )
        return flat

    return Engine(engine.name, encode)


def probe_texts(tokenizer: ChatTokenizer) -> list[str]:
    """Return texts on which engines are most likely to differ, with control tokens in all positions."""
    texts = ["", *_TEXTS, *_SPACES, *_LONG]
    for token in list(tokenizer.added_tokens)[:64]:
        texts += [f"{token}", f"a {token} b{token}\n{token}{token} ", token[:-1], f"x{token[1:]}"]
    return [*texts, "".join(_TEXTS) * 3]


def use_engine(tokenizer: ChatTokenizer, choice: str, num_input_bytes: int) -> EngineReport:
    """Set the tokenizer's engine to the fast one if its ids equal those of `tokenizers`; return which is used.

    `auto` keeps `tokenizers`, the tokenizer's initial engine, for small inputs. No thread is left behind.
    """
    if choice == REFERENCE or tokenizer.backend is None or (choice == "auto" and num_input_bytes < MIN_INPUT_BYTES):
        return EngineReport(REFERENCE)
    reference = reference_engine(tokenizer.backend)
    try:
        engine = reference_where_unicode_differs(load_engine(tokenizer.backend.to_str().encode()), reference)
        if _are_equal(engine, reference, probe_texts(tokenizer)):
            tokenizer.engine = checked_engine(engine, reference)
            return EngineReport(FAST)
        reason = f"{FAST} and tokenizers give different tokens with this tokenizer"
    except EngineError as error:
        reason = str(error)
    return EngineReport(REFERENCE, f"{_SLOWER}: {reason}")


def check_texts(tokenizer: ChatTokenizer, texts: Sequence[str]) -> EngineReport:
    """Compare the tokenizer's engine with `tokenizers` on texts of the data; stop using it if they differ."""
    engine = tokenizer.engine
    if engine.name == REFERENCE or not texts:
        return EngineReport(engine.name)
    reference = reference_engine(tokenizer.backend)
    if _are_equal(engine, reference, texts):
        return EngineReport(engine.name)
    tokenizer.engine = reference
    return EngineReport(REFERENCE, f"{_SLOWER}: {engine.name} and tokenizers give different tokens for this data")


def _are_equal(engine: Engine, reference: Engine, texts: Sequence[str]) -> bool:
    try:
        engine_ids = engine.encode_flat(texts)
    except EngineDiffersError:
        return False
    reference_ids = reference.encode_flat(texts)
    return np.array_equal(engine_ids.offsets, reference_ids.offsets) and np.array_equal(
        engine_ids.input_ids, reference_ids.input_ids
    )
