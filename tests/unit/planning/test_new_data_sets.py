"""What `new` writes for data as people have it: evaluated, trained as served, and clean in the strictest check.

The model is a folder with the size of the tokenizer's vocabulary. Of a check with packs, what the data itself has (rows
that are too long, the same in both splits) is not asked.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.load import load_recipe
from bridgepack.examples.conversations import write_docstring_conversations
from bridgepack.records import Shares
from bridgepack.rules.judging.rule import Severity
from tests.support.small_builds import build, write_json_lines
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

QWEN_3 = next(family for family in SERVED_FAMILIES if family.name == "Qwen3")
Rows = list[Mapping[str, Any]]
Model = tuple[Path, Path | None]  # its folder, and that of a tokenizer elsewhere
#: Rules on what a setting decides: answers as they are served, batches, steps and evaluation, lengths.
OF_SETTINGS = ("BP555", "BP556", "BP557", "BP558", "BP60", "BP61", "BP62", "BP63", "BP64")


def _numbered(row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a row with texts of its own, as rows of two splits must not be the same."""
    messages = [
        {**turn, "content": f"{number} {turn['content']}"} if turn["role"] == "user" else turn
        for turn in row["messages"]
    ]
    return {**row, "messages": messages}


def _served(name: str, count: int) -> Rows:
    return [_numbered(SETS[name], number) for number in range(count)]


def _alpaca(number: int) -> Mapping[str, Any]:
    return {"instruction": f"Add {number} and {number}.", "input": "As a number.", "output": f"{2 * number}"}


def _sharegpt(number: int) -> Mapping[str, Any]:
    turns = [("human", f"Hello {number}"), ("gpt", "Hello."), ("human", "Bye"), ("gpt", f"Bye {number}.")]
    return {"conversations": [{"from": who, "value": text} for who, text in turns]}


def _long(number: int) -> Mapping[str, Any]:
    turns = [("user", f"{number} {'long ' * 500}"), ("assistant", "short")] * (1 + number % 3)
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


MADE: Mapping[str, tuple[Rows, int]] = {  # rows, and GPUs
    "multi-turn": (_served("plain", 120), 1),
    "thoughts": (_served("thoughts", 120), 1),
    "tools": (_served("agents", 60), 1),
    "single row": (_served("plain", 1), 1),
    "3 rows": (_served("plain", 3), 1),
    "10 rows": (_served("plain", 10), 1),
    "long rows": ([_long(number) for number in range(60)], 1),
    "alpaca": ([_alpaca(number) for number in range(400)], 2),
    "sharegpt": ([_sharegpt(number) for number in range(300)], 2),
    "prompt and completion": (
        [{"prompt": f"{number} + {number} =", "completion": f" {2 * number}"} for number in range(600)],
        2,
    ),
}


def _model(folder: Path, vocab_size: int, **values: Any) -> None:
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "intermediate_size": 1536,
        "hidden_act": "silu",
        "vocab_size": vocab_size,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        **values,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Return the folders of a small model and of the zoo's tokenizer, of which it has the size."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer", QWEN_3)
    content = json.loads((tokenizer / "tokenizer.json").read_text())
    ids = [*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])]
    (tmp_path / "model").mkdir()
    _model(tmp_path / "model", max(ids) + 1)
    return tmp_path / "model", tokenizer


def _said_share(choice: Shares | None) -> float:
    return 1.0 if choice is None else choice.served_fraction


def _check_new(folder: Path, model: Model, data: Path, num_gpus: int) -> str:
    """Write a new recipe, build it, check it strictly with and without packs; return the line on its batch."""
    weights, tokenizer = model
    new = bridgepack.new_recipe(
        "mine",
        model=str(weights),
        num_gpus=num_gpus,
        seq_length=4096,
        data=str(data),
        tokenizer=None if tokenizer is None else str(tokenizer),
    )
    recipe = load_recipe(new.write(folder / "mine.yaml"))
    packs = build(recipe, folder / "packs")

    alone, with_packs = CheckOptions(), CheckOptions(artifact=packs.output, select=OF_SETTINGS)
    for options in (alone, with_packs):
        report = check_target(recipe, replace(options, looks_at_files=False))
        assert [(one.code, one.found) for one in report.findings if one.severity is not Severity.ADVICE] == []
    settings = {entry.path: entry.value for entry in bridgepack.resolve_recipe(recipe, artifact=packs.output).settings}
    is_evaluated = settings["validation.eval_iters"] > 0
    assert is_evaluated != ("; no evaluation: " in new.fit.line)
    assert settings["train.global_batch_size"] * 4096 == recipe.batch.tokens_per_step
    served = packs.manifest.served
    if served is not None:
        assert served.share("equal") == _said_share(new.fit.choice) == 1
    return new.fit.line


@pytest.mark.parametrize("name", MADE)
def test_made_data(tmp_path: Path, model: Model, name: str) -> None:
    rows, num_gpus = MADE[name]

    line = _check_new(tmp_path, model, write_json_lines(tmp_path / "rows.jsonl", list(rows)), num_gpus)

    assert ("; no evaluation: " in line) == (name in ("single row", "3 rows"))


def test_the_quickstart_s_data(tmp_path: Path, model: Model) -> None:
    write_docstring_conversations(tmp_path / "rows.jsonl", limit=60)

    line = _check_new(tmp_path, model, tmp_path / "rows.jsonl", 1)

    assert "evaluation step" in line


SHARED: Mapping[str, Callable[[str], str]] = {
    "gsm8k_train.jsonl": lambda text: "\n".join(text.splitlines()[:400]),
    "fastchat_dummy_conversation.json": lambda text: json.dumps(json.loads(text)[:200]),
    "glaive_toolcall_demo.json": lambda text: json.dumps(json.loads(text)[:60]),
}


@pytest.mark.parametrize("name", SHARED)
def test_public_data_with_a_real_tokenizer(tmp_path: Path, reference_data: Path, name: str) -> None:
    model = tmp_path / "Qwen3-8B"
    model.mkdir()
    for file in (reference_data / "tokenizers" / "qwen3").iterdir():
        (model / file.name).symlink_to(file)
    _model(model, 151936, eos_token_id=151645)
    data = tmp_path / name
    data.write_text(SHARED[name]((reference_data / "data" / name).read_text()))

    line = _check_new(tmp_path, (model, None), data, 2)

    assert "evaluation step" in line
