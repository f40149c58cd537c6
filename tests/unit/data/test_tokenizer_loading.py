"""Loading a tokenizer: loss of text is noticed, its own file is the way out, and refusals say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import TokenizerError
from bridgepack.examples import train_chatml_tokenizer

TEXT = "Hello world, 12345.\n    def f(x):\n\treturn x"


@pytest.fixture
def mislabelled(tmp_path: Path) -> Path:
    """Return a byte-level tokenizer whose configuration names a class that is not byte-level, as DeepSeek-V3's does."""
    folder = train_chatml_tokenizer(tmp_path / "tokenizer", ["a small text of small words"], vocab_size=300)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "LlamaTokenizerFast"}))
    return folder


def test_loss_of_text_is_noticed(mislabelled: Path) -> None:
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(mislabelled)))

    assert tokenizer.loses_text == (tokenizer.decode(tokenizer.encode(TEXT)) != TEXT)
    assert tokenizer.identity()["loses_text"] == tokenizer.loses_text


def test_own_file_keeps_text(mislabelled: Path) -> None:
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(mislabelled), loader="tokenizer_json"))

    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert not tokenizer.loses_text
    assert tokenizer.chat_template is not None
    assert tokenizer.special_token_id("eos") == tokenizer.added_tokens["<|im_end|>"]


def test_sound_tokenizer_is_not_accused(tmp_path: Path) -> None:
    folder = train_chatml_tokenizer(tmp_path / "tokenizer", ["a small text of small words"], vocab_size=300)

    assert not load_tokenizer(TokenizerConfig(name_or_path=str(folder))).loses_text


@pytest.mark.reference_data
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
def test_real_tokenizers_keep_text_through_their_own_file(reference_data: Path, name: str) -> None:
    config = TokenizerConfig(name_or_path=str(reference_data / "tokenizers" / name), loader="tokenizer_json")
    tokenizer = load_tokenizer(config)

    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        (None, "there is no such folder. Give a tokenizer folder or a Hugging Face id."),
        ({}, "the folder is empty. It must hold tokenizer.json and tokenizer_config.json."),
        ({"tokenizer.json": "{"}, "it cannot be loaded: .* Give a folder with tokenizer.json"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "it cannot be loaded: .* Give a folder with"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{}"}, "it has no eos_token"),
    ],
)
def test_missing_and_damaged_files_are_refused(
    tmp_path: Path, files: dict[str, str | None] | None, refusal: str
) -> None:
    folder = tmp_path / "tokenizer"
    sound = train_chatml_tokenizer(tmp_path / "sound", ["a small text of small words"], vocab_size=300)
    if files is not None:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text((sound / name).read_text() if content is None else content)

    with pytest.raises(TokenizerError, match=rf"^tokenizer\.name_or_path is {str(folder)!r}; {refusal}"):
        load_tokenizer(TokenizerConfig(name_or_path=str(folder)))


def test_name_of_the_hub_that_is_not_in_the_cache_is_refused_offline() -> None:
    with pytest.raises(
        TokenizerError, match=r"^tokenizer\.name_or_path is 'no-such-owner/no-such-name'; it cannot be loaded"
    ):
        load_tokenizer(TokenizerConfig(name_or_path="no-such-owner/no-such-name"))
