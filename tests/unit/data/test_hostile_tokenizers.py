"""Tokenizer folders whose files have values of a wrong kind: one error that says which, never a traceback."""

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import TokenizerError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"eos_token": "e" * 1_000_000},
            r"its eos_token 'eeeeeeeeeeeeeeeeeeee'\.\.\. has 1,000,000 characters; allowed: at most 10,000",
        ),
        (
            {"additional_special_tokens": ["x" * 10_001]},
            r"its additional_special_tokens 'x+'\.\.\. has 10,001 characters",
        ),
        ({"model_max_length": "many"}, r"model_max_length of its tokenizer_config.json is 'many'; allowed: a number"),
        ({"eos_token": ""}, r"it has no eos_token"),
        ({"eos_token": 5}, r"it (cannot be loaded|has no eos_token)"),
        ({"eos_token": ["a"]}, r"it (cannot be loaded|has no eos_token)"),
    ],
)
def test_wrong_values_of_a_tokenizer_config_are_errors(
    tmp_path: Path, chatml_tokenizer: Path, changes: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "tokenizer"
    shutil.copytree(chatml_tokenizer, folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(TokenizerConfig(name_or_path=str(folder)))


def test_a_long_token_of_a_tokenizer_json_is_an_error(tmp_path: Path, chatml_tokenizer: Path) -> None:
    folder = tmp_path / "tokenizer"
    shutil.copytree(chatml_tokenizer, folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"].append(content["added_tokens"][0] | {"id": 5000, "content": "x" * 10_001})
    path.write_text(json.dumps(content))

    with pytest.raises(
        TokenizerError, match=r"its added token 'x+'\.\.\. has 10,001 characters; allowed: at most 10,000"
    ):
        load_tokenizer(TokenizerConfig(name_or_path=str(folder)))


def test_many_long_tokens_take_little_memory(tmp_path: Path, chatml_tokenizer: Path) -> None:
    folder = tmp_path / "tokenizer"
    shutil.copytree(chatml_tokenizer, folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    long = [content["added_tokens"][0] | {"id": 5000 + index, "content": f"{index}" * 2_000} for index in range(10)]
    content["added_tokens"] += long
    path.write_text(json.dumps(content))
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    assert len(tokenizer.added_tokens) > len(long)

    tracemalloc.start()
    try:
        found = CuttingTokens(tokenizer).ids
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert {"<|im_start|>", "<|im_end|>"} <= found.keys()
    assert peak < 4 << 20
