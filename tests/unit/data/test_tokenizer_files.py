"""What a tokenizer's files say, in the forms that models come with."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.tokenizers.files import TokenizerFiles, tokenizer_files

_WORDS = {"a": 0, "b": 1, "</s>": 2}


def _write(folder: Path, files: dict[str, Any]) -> TokenizerFiles | None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return tokenizer_files(folder)


def _fast(vocabulary: Any = _WORDS, *extra: tuple[int, str]) -> dict[str, Any]:
    return {"model": {"vocab": vocabulary}, "added_tokens": [{"id": index, "content": text} for index, text in extra]}


@pytest.mark.parametrize(
    ("files", "tokens"),
    [
        ({"tokenizer.json": _fast(_WORDS, (3, "<x>"))}, {0: "a", 1: "b", 2: "</s>", 3: "<x>"}),
        ({"tokenizer.json": _fast([["a", 0.0], ["b", -1.0]])}, {0: "a", 1: "b"}),
        ({"vocab.json": _WORDS, "added_tokens.json": {"<x>": 7}}, {0: "a", 1: "b", 2: "</s>", 7: "<x>"}),
        (
            {"tokenizer.json": _fast(), "tokenizer_config.json": {"added_tokens_decoder": {"5": {"content": "<y>"}}}},
            {0: "a", 1: "b", 2: "</s>", 5: "<y>"},
        ),
        ({"tokenizer.model": "pieces"}, {}),
        ({"tokenizer.json": "{", "tokenizer_config.json": "["}, {}),
        ({"tokenizer.json": _fast({"a": "x"}, (3, "<x>"))}, {}),
    ],
)  # fmt: skip
def test_ids_and_tokens(tmp_path: Path, files: dict[str, Any], tokens: dict[int, str]) -> None:
    content = _write(tmp_path, files)

    assert content is not None
    assert content.tokens == tokens
    assert content.num_ids == (max(tokens) + 1 if tokens else None)


def test_special_tokens_without_an_id_get_the_next_ones(tmp_path: Path) -> None:
    special = {"eos_token": "</s>", "pad_token": {"content": "<pad>"}}
    content = _write(tmp_path, {"tokenizer.json": _fast(), "tokenizer_config.json": special})

    assert content is not None
    assert (len(content.tokens), content.num_ids) == (3, 4)


def test_a_folder_without_a_vocabulary_has_no_tokenizer(tmp_path: Path) -> None:
    assert _write(tmp_path, {"config.json": {}, "tokenizer_config.json": {}, "model.gguf": ""}) is None
    assert tokenizer_files(tmp_path / "missing") is None


def test_special_ids_and_template(tmp_path: Path) -> None:
    templates = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]
    content = _write(
        tmp_path,
        {
            "tokenizer.json": _fast(_WORDS, (3, "<pad>")),
            "tokenizer_config.json": {"eos_token": {"content": "</s>"}, "chat_template": templates},
            "special_tokens_map.json": {"eos_token": "a", "pad_token": "<pad>"},
        },
    )

    assert content is not None
    assert [content.special_id(name) for name in ("eos", "pad", "bos")] == [2, 3, None]
    assert content.chat_template == "D"

    _write(tmp_path, {"chat_template.jinja": "J"})
    assert TokenizerFiles(folder=tmp_path, file="tokenizer.json").chat_template == "J"
