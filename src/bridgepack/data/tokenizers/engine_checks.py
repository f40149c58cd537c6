"""Chooses the engine that encodes texts, and makes sure that it gives the ids that `tokenizers` gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bridgepack.data.tokenizers.engines import (
    FAST_ENGINES,
    REFERENCE,
    Engine,
    EngineDiffersError,
    EngineError,
    EngineReport,
    FlatIds,
    ReferenceEngine,
    load_engine,
)
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

#: Below it, loading a fast engine takes longer than it saves.
MIN_INPUT_BYTES = 4 << 20
#: Texts of a batch that are compared while a build goes on, where the batch has this many at least.
_COMPARED, _MIN_TEXTS = 2, 16
_WORDS = "The quick brown fox, it's 3.14159 and 1234567890 naïve café Straße Ünïcödé ﬁne"
_SCRIPTS = "你好，世界。日本語のテキスト 한국어 Русский язык עברית العربية हिन्दी ไทย ქართული Ελληνικά"
_SYMBOLS = (
    "😀👍🏽👩‍👩‍👧🇩🇪 ☃️ e\u0301 \u00e9 A\u030a \ufb01 \u200b\u200d\ufeff \u2028\u2029 "
    "\x00\x07\x1b \u00a0x \U0001f9d1\u200d\U0001f4bb"
)
_SPACES = ("a b", "a  b", "a   b ", "\n\n\nx", " \n \n", "\t\tx\t y", "x \r\n\r\n y", " ", "  ", "\n", "\r", "\u3000x")
_LONG = ("a" * 5000, "ab" * 3000, "1" * 3000, " " * 3000, "\n" * 500, "!?" * 2000, "é" * 2000, "字" * 3000, "=" * 400)
_CODE = (
    'def f(x):\n    return {"a": [1, 2], \'b\': f"{x!r}"}  # TODO\n\n\nclass A_b2:\n\tpass\n<div class="x">&amp;</div>'
)


class CheckedEngine:
    """A fast engine, a few of whose results are compared with `tokenizers` in every batch."""

    def __init__(self, engine: Engine, reference: Engine) -> None:
        """Take both."""
        self._engine = engine
        self._reference = reference
        self.name = engine.name

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts.

        Raises:
            EngineDiffersError: when those of one that was compared are not those of `tokenizers`.
        """
        flat = self._engine.encode_flat(texts)
        if len(texts) >= _MIN_TEXTS:
            chosen = [len(texts) * number // _COMPARED for number in range(_COMPARED)]
            expected = self._reference.encode_flat([texts[index] for index in chosen])
            found = [flat.input_ids[flat.offsets[index] : flat.offsets[index + 1]] for index in chosen]
            if not np.array_equal(np.concatenate(found), expected.input_ids):
                raise EngineDiffersError(
                    f"tokenizer.engine: {self.name} gives other tokens than tokenizers for this data. Set it to "
                    "tokenizers."
                )
        return flat


def probe_texts(tokenizer: ChatTokenizer) -> list[str]:
    """Return texts on which engines are most likely to differ: scripts, runs, control tokens in every place."""
    texts = ["", _WORDS, _SCRIPTS, _SYMBOLS, _CODE, *_SPACES, *_LONG]
    for token in list(tokenizer.added_tokens)[:64]:
        texts += [f"{token}", f"a {token} b{token}\n{token}{token} ", token[:-1], f"x{token[1:]}"]
    return [*texts, "".join(texts[1:5]) * 3]


def use_engine(tokenizer: ChatTokenizer, wanted: str, num_input_bytes: int) -> EngineReport:
    """Give the tokenizer the engine that a recipe wants, where it gives the ids of `tokenizers`.

    Args:
        tokenizer: its engine is `tokenizers`.
        wanted: `auto`, or the name of an engine.
        num_input_bytes: size of the input; `auto` leaves small ones to `tokenizers`.
    """
    if wanted == REFERENCE or tokenizer.backend is None or (wanted == "auto" and num_input_bytes < MIN_INPUT_BYTES):
        return EngineReport(REFERENCE)
    reasons = []
    for name in FAST_ENGINES if wanted == "auto" else (wanted,):
        try:
            engine = _sound_engine(tokenizer, name)
        except EngineError as error:
            reasons.append(str(error))
            continue
        tokenizer.engine = CheckedEngine(engine, ReferenceEngine(tokenizer.backend))
        return EngineReport(name)
    is_silent = wanted == "auto" and all("is not installed" in reason for reason in reasons)
    message = None if is_silent else f"tokenising with tokenizers, which is slower: {'; '.join(reasons)}"
    return EngineReport(REFERENCE, message)


def check_texts(tokenizer: ChatTokenizer, texts: Sequence[str]) -> EngineReport:
    """Compare the tokenizer's engine with `tokenizers` on texts of the data; where they differ, it is used no more."""
    engine = tokenizer.engine
    if engine.name == REFERENCE or not texts:
        return EngineReport(engine.name)
    reference = ReferenceEngine(tokenizer.backend)
    if _run(engine.name, lambda: _are_equal(engine, reference, texts)):
        return EngineReport(engine.name)
    tokenizer.engine = reference
    message = f"tokenising with tokenizers, which is slower: {engine.name} gives other tokens for this data"
    return EngineReport(REFERENCE, message)


def _sound_engine(tokenizer: ChatTokenizer, name: str) -> Engine:
    """Return an engine that gives the ids of `tokenizers` for the probe texts.

    Raises:
        EngineError: when it is not installed, cannot load the tokenizer, or differs.
    """
    content = tokenizer.encoding_json()
    engine = _LateEngine(name, content) if name == "fastokens" else load_engine(name, content)
    reference, texts = ReferenceEngine(tokenizer.backend), probe_texts(tokenizer)
    if not _run(name, lambda: _are_equal(engine, reference, texts)):
        raise EngineError(f"{name} gives other tokens than tokenizers with this tokenizer")
    return engine


class _LateEngine:
    """An engine that starts threads, so that each process loads one of its own when it first needs it."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content
        self._loaded: tuple[int, Engine] | None = None

    def encode_flat(self, texts: Sequence[str]) -> FlatIds:
        """Return the ids of texts."""
        if self._loaded is None or self._loaded[0] != os.getpid():
            self._loaded = os.getpid(), load_engine(self.name, self._content)
        return self._loaded[1].encode_flat(texts)


def _are_equal(engine: Engine, reference: Engine, texts: Sequence[str]) -> bool:
    found, expected = engine.encode_flat(texts), reference.encode_flat(texts)
    return np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.input_ids, expected.input_ids)


def _run(name: str, compare: Callable[[], bool]) -> bool:
    """Return what a comparison says; an engine that starts threads is compared in a process of its own.

    Raises:
        EngineError: when the engine cannot be loaded there.
    """
    if name != "fastokens":
        return compare()
    number = os.fork()
    if number == 0:
        code: Any = 2
        try:
            code = 0 if compare() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    if code == 2:
        raise EngineError(f"{name} is not installed or cannot load this tokenizer")
    return bool(code == 0)
