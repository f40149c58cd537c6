"""Engines that turn texts into ids: `tokenizers`, the reference, and two much faster ones that are compared with it."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.errors import DataError
from bridgepack.geometry import IntArray
from bridgepack.records import TokenArray

if TYPE_CHECKING:
    from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

REFERENCE = "tokenizers"
#: Input bytes below which loading a fast engine takes longer than it saves.
MIN_INPUT_BYTES = 4 << 20
#: Texts of a batch that are compared during a build, if the batch has at least this many.
_COMPARED, _MIN_TEXTS = 2, 16
#: Engine that starts threads: each process loads its own, and the comparison runs in a process that ends.
_STARTS_THREADS = "fastokens"
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


def reference_where_unicode_differs(engine: Engine, reference: Engine) -> Engine:
    """Return an engine that encodes texts with characters on which versions of Unicode disagree as the reference does.

    Each engine follows a version of its own: `tokenizers` 0.22 orders marks as Unicode 9 does, gigatoken 0.10 as 17.
    """

    def encode(texts: Sequence[str]) -> FlatIds:
        flat = engine.encode_flat(texts)
        disputed = [index for index, text in enumerate(texts) if not text.isascii() and _is_disputed(text)]
        if not disputed:
            return flat
        parts = flat.split()
        for index, ids in zip(disputed, reference.encode_flat([texts[i] for i in disputed]).split(), strict=True):
            parts[index] = ids
        return joined(parts)

    return Engine(engine.name, encode)


def _is_disputed(text: str) -> bool:
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return bool(_disputed_characters()[np.minimum(codes, _NUM_CODE_POINTS - 1)].any())


@lru_cache(maxsize=1)
def _disputed_characters() -> npt.NDArray[np.bool_]:
    """Return which characters are unassigned, or have an order or a decomposition that Unicode 3.2 lacks.

    Shape [_NUM_CODE_POINTS]. Unassigned is what Unicode 15.0, that of Python 3.12, lacks: no engine is older there.
    """
    old, found = unicodedata.ucd_3_2_0, np.zeros(_NUM_CODE_POINTS, dtype=np.bool_)
    for code in range(_NUM_CODE_POINTS):
        character = chr(code)
        parts = unicodedata.decomposition(character)
        if unicodedata.category(character) == "Cn" or unicodedata.combining(character) != old.combining(character):
            found[code] = True
        elif parts != old.decomposition(character):
            found[code] = True
            if " " in parts and not parts.startswith("<"):  # its parts are composed, too
                found[[int(part, 16) for part in parts.split()]] = True
    return found


def checked_engine(engine: Engine, reference: Engine) -> Engine:
    """Return an engine that compares a few of its results per batch with `tokenizers`.

    It raises `EngineDiffersError` if they differ.
    """

    def encode(texts: Sequence[str]) -> FlatIds:
        flat = engine.encode_flat(texts)
        if len(texts) >= _MIN_TEXTS:
            chosen = [len(texts) * number // _COMPARED for number in range(_COMPARED)]
            expected = reference.encode_flat([texts[index] for index in chosen])
            found = [flat.input_ids[flat.offsets[index] : flat.offsets[index + 1]] for index in chosen]
            if not np.array_equal(np.concatenate(found), expected.input_ids):
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


def use_engine(tokenizer: ChatTokenizer, wanted: str, num_input_bytes: int) -> EngineReport:
    """Set the tokenizer's engine to the recipe's if its ids equal those of `tokenizers`; return which is used.

    `auto` keeps `tokenizers`, the tokenizer's initial engine, for small inputs.
    """
    if wanted == REFERENCE or tokenizer.backend is None or (wanted == "auto" and num_input_bytes < MIN_INPUT_BYTES):
        return EngineReport(REFERENCE)
    reasons, reference, content = [], reference_engine(tokenizer.backend), tokenizer.backend.to_str().encode()
    for name in FAST_ENGINES if wanted == "auto" else (wanted,):
        try:
            loaded = _loaded_late(name, content) if name == _STARTS_THREADS else load_engine(name, content)
            engine = reference_where_unicode_differs(loaded, reference)
            if _are_equal(engine, reference, probe_texts(tokenizer)):
                tokenizer.engine = checked_engine(engine, reference)
                return EngineReport(name)
            reasons.append(f"{name} and tokenizers give different tokens with this tokenizer")
        except EngineError as error:
            reasons.append(str(error))
    is_silent = wanted == "auto" and all("is not installed" in reason for reason in reasons)
    return EngineReport(REFERENCE, None if is_silent else f"{_SLOWER}: {'; '.join(reasons)}")


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


def _loaded_late(name: str, content: bytes) -> Engine:
    """Return an engine that each process loads when it first needs it."""

    @lru_cache(maxsize=1)
    def loaded(_process: int) -> Engine:
        return load_engine(name, content)

    return Engine(name, lambda texts: loaded(os.getpid()).encode_flat(texts))


def _are_equal(engine: Engine, reference: Engine, texts: Sequence[str]) -> bool:
    """Return whether two engines give the same ids; raises EngineError if the engine cannot be loaded."""
    if engine.name != _STARTS_THREADS:
        return _give_same_ids(engine, reference, texts)
    number = os.fork()
    if number == 0:
        code = 2
        try:
            code = 0 if _give_same_ids(engine, reference, texts) else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    if code == 2:
        raise EngineError(f"{engine.name} is not installed or cannot load this tokenizer")
    return code == 0


def _give_same_ids(engine: Engine, reference: Engine, texts: Sequence[str]) -> bool:
    found, expected = engine.encode_flat(texts), reference.encode_flat(texts)
    return np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.input_ids, expected.input_ids)
