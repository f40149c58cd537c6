"""What the folder of a model says, in the forms in which people have one."""

import json
from pathlib import Path
from typing import Any

from bridgepack.bridge.model_folder import read_model_folder

_TOKENIZER = {"model": {"vocab": {"a": 0, "b": 1}}}


def _write(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_a_model_of_hugging_face(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "config.json": {
                "vocab_size": 100,
                "text_config": {"vocab_size": 90, "eos_token_id": 5},
                "eos_token_id": None,
            },
            "generation_config.json": {"eos_token_id": [7, 8], "pad_token_id": 9},
            "tokenizer.json": _TOKENIZER,
            "model.safetensors": "",
        },
    )
    folder = read_model_folder(tmp_path)

    assert (folder.kind, folder.vocab_size, folder.base) == ("hugging_face", 90, None)
    assert folder.token_ids("eos") == {5, 7, 8}
    assert folder.token_ids("pad") == {9}
    assert folder.token_ids("bos") == set()
    assert folder.tokenizer is not None
    assert folder.tokenizer.tokens == {0: "a", 1: "b"}


def test_the_newest_checkpoint_of_a_run_counts(tmp_path: Path) -> None:
    run_config = "model: {vocab_size: %d, hf_model_id: Qwen/Qwen3-8B}\ntokenizer: {tokenizer_model: Qwen/Qwen3-8B}\n"
    _write(
        tmp_path,
        {
            "latest_checkpointed_iteration.txt": "20",
            "iter_0000020/run_config.yaml": run_config % 151936,
            "iter_0000020/tokenizer/tokenizer.json": _TOKENIZER,
            "iter_0000100/run_config.yaml": run_config % 7,
        },
    )
    folder = read_model_folder(tmp_path)

    assert (folder.kind, folder.vocab_size) == ("megatron", 151936)
    assert (folder.hub_id, folder.tokenizer_name) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B")
    assert folder.tokenizer is not None
    assert folder.tokenizer.folder == tmp_path / "iter_0000020" / "tokenizer"

    (tmp_path / "latest_checkpointed_iteration.txt").unlink()
    assert read_model_folder(tmp_path).vocab_size == 7
    assert read_model_folder(tmp_path / "iter_0000020").vocab_size == 151936


def test_an_adapter_names_the_model_that_it_was_trained_on(tmp_path: Path) -> None:
    _write(tmp_path / "peft", {"adapter_config.json": {"base_model_name_or_path": "/models/base"}})
    _write(
        tmp_path / "run",
        {"iter_0000001/run_config.yaml": "peft: {dim: 8}\ncheckpoint: {pretrained_checkpoint: /weights/base}\n"},
    )

    assert read_model_folder(tmp_path / "peft").base == "/models/base"
    assert read_model_folder(tmp_path / "run").base == "/weights/base"


def test_what_is_missing_or_broken_says_nothing(tmp_path: Path) -> None:
    _write(tmp_path, {"config.json": "{", "generation_config.json": "[]", "run_config.yaml": "a: [", "model.gguf": ""})

    for path in (tmp_path, tmp_path / "missing"):
        folder = read_model_folder(path)
        assert (folder.vocab_size, folder.tokenizer, folder.base, folder.hub_id) == (None, None, None, None)
        assert folder.token_ids("eos") == set()
