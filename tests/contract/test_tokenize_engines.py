"""The fast engine gives the tokens and masks that `tokenizers` gives, or is not used.

Only transformers and `tokenizers` are the reference here; the host is not needed.
"""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.tokenizers.engines import FAST, probe_texts, use_engine
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.zoo.tokenizers import CHATML, FAMILIES, Family, write_tokenizer

DEEPSEEK_MARKERS = {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end▁of▁sentence｜>"}
LARGE = 1 << 30


def _load(folder: Path, loader: str = "tokenizer_json") -> ChatTokenizer:
    return load_tokenizer(TokenizerConfig(name_or_path=str(folder), loader=loader))


def _chats(reference_data: Path) -> list[dict[str, Any]]:
    data = reference_data / "data"
    rows = json.loads((data / "glaive_toolcall_demo.json").read_text())
    rows += json.loads((data / "fastchat_dummy_conversation.json").read_text())
    for line in (data / "gsm8k_train.jsonl").read_text().splitlines()[:500]:
        row = json.loads(line)
        rows.append({"prompt": row["question"], "completion": row["answer"]})
    return rows


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
def test_reference_rows(reference_data: Path, name: str) -> None:
    tokenizer = _load(reference_data / "tokenizers" / name)
    markers = DEEPSEEK_MARKERS if name == "deepseek_v3" else None
    chat = ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing(assistant_markers=markers)))
    settings = PromptCompletionPreprocessing(kind="prompt_completion")
    pairs = ReadingEncoder(PromptCompletionEncoder(tokenizer, settings), settings)
    rows = list(_chats(reference_data))
    expected = [str(item) for encoder in (chat, pairs) for item in encode_examples(encoder, rows)]

    assert use_engine(tokenizer, FAST, LARGE) == (FAST, None)

    assert tokenizer.engine.name == FAST
    assert [str(item) for encoder in (chat, pairs) for item in encode_examples(encoder, rows)] == expected


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_any_tokenizer_keeps_its_tokens(tmp_path: Path, family: Family) -> None:
    """If it does not know a tokenizer, or differs, it says so and is not used."""
    tokenizer = _load(write_tokenizer(tmp_path, family))
    texts = probe_texts(tokenizer)
    expected = tokenizer.engine.encode_flat(texts)

    report = use_engine(tokenizer, FAST, LARGE)

    found = tokenizer.engine.encode_flat(texts)
    assert np.array_equal(found.input_ids, expected.input_ids)
    assert np.array_equal(found.offsets, expected.offsets)
    assert (report.name == FAST) == (report.message is None)
    assert tokenizer.engine.name == report.name


def test_every_character_keeps_its_tokens(tmp_path: Path) -> None:
    """Engines follow different versions of Unicode, which order and compose marks and sort letters differently."""
    tokenizer = _load(write_tokenizer(tmp_path, replace(CHATML, edit=_like_qwen)))
    reference = tokenizer.engine
    assert use_engine(tokenizer, FAST, LARGE) == (FAST, None)
    contexts = "e\u0316{0}\u0316{0}\u0301", "x {0}y1{0}!{0}", "\U00011935{0}\u07f3{0}"
    every = [chr(code) for code in (*range(0x80, 0x3400), *range(0xA000, 0xAC00), *range(0xE000, 0x20000))]
    marks = filter(lambda text: unicodedata.combining(text) or unicodedata.decomposition(text), every)
    characters = [*marks, *every[::7]]

    for context in contexts:
        texts = [context.format(character) for character in characters]
        found, expected = tokenizer.engine.encode_flat(texts), reference.encode_flat(texts)
        assert np.array_equal(found.offsets, expected.offsets)
        assert np.array_equal(found.input_ids, expected.input_ids)


def _like_qwen(tokenizer: dict[str, Any]) -> None:
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    words += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_of]}
    tokenizer["normalizer"] = {"type": "NFC"}


def test_small_inputs_are_left_to_the_reference(tmp_path: Path) -> None:
    tokenizer = _load(write_tokenizer(tmp_path, CHATML))

    assert use_engine(tokenizer, "auto", 1000) == ("tokenizers", None)
    assert use_engine(tokenizer, "tokenizers", LARGE) == ("tokenizers", None)
