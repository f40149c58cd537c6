"""The tokenizer of a run beside the model's, from the files that people have: real ones, and small made ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Finding
from tests.support.bridge_recipes import recipe_of
from tests.support.small_builds import build, small_recipe, with_changes
from tests.unit.rules.run_cases import base_values

CODES = ("BP525", "BP530", "BP560", "BP561", "BP562", "BP563", "BP564", "BP565", "BP566", "BP567")
QWEN = "qwen3_8b_sft_4gpu_h100_bf16_config"
_QWEN_VOCABULARY = 151936
Edit = Callable[[dict[str, Any]], Any]


def write_json(path: Path, content: Any, **style: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, **style), encoding="utf-8")


def edited(source: Path, folder: Path, *, tokenizer: Edit | None = None, config: Edit | None = None) -> Path:
    """Copy a tokenizer, with changes to its tokenizer.json and tokenizer_config.json."""
    shutil.copytree(source, folder)
    for name, edit in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        if edit is not None:
            content = json.loads((source / name).read_text(encoding="utf-8"))
            edit(content)
            write_json(folder / name, content)
    return folder


def model_folder(folder: Path, tokenizer: Path | None = None, **generation: Any) -> Path:
    """Write a model of Hugging Face: config, weights without content, the tokenizer's files if there are any."""
    if tokenizer is not None:
        shutil.copytree(tokenizer, folder)
    write_json(folder / "config.json", {"model_type": "qwen3", "vocab_size": _QWEN_VOCABULARY})
    write_json(folder / "generation_config.json", generation)
    (folder / "model.safetensors").touch()
    return folder


def findings(recipe: Any, **options: Any) -> dict[str, Finding]:
    report = check_target(recipe, CheckOptions(select=CODES, **options))
    return {finding.code: finding for finding in report.findings}


def run_of(tokenizer: Path | str, weights: Path | str | None = None, **changes: Any) -> SFTRecipe:
    pretrained = {} if weights is None else {"checkpoint__pretrained": str(weights)}
    return with_changes(recipe_of(QWEN), {"tokenizer__name_or_path": str(tokenizer), **pretrained, **changes})


@pytest.fixture(scope="module")
def qwen(reference_data: Path) -> Path:
    return reference_data / "tokenizers/qwen3"


@pytest.fixture(scope="module")
def deepseek(reference_data: Path) -> Path:
    return reference_data / "tokenizers/deepseek_v3"


def test_the_models_tokenizer_is_silent_however_it_was_saved(tmp_path: Path, qwen: Path) -> None:
    """A copy, the same content in another file format, and a save with fewer files."""
    weights = model_folder(tmp_path / "weights", qwen, eos_token_id=[151645, 151643], pad_token_id=151643)

    def as_saved_anew(content: dict[str, Any]) -> None:
        content["version"] = "2.0"
        content["model"]["merges"] = [
            merge.split(" ") if isinstance(merge, str) else merge for merge in content["model"]["merges"]
        ]

    shutil.copytree(qwen, tmp_path / "copy")
    edited(qwen, tmp_path / "anew", tokenizer=as_saved_anew)
    content = json.loads((qwen / "tokenizer.json").read_text(encoding="utf-8"))
    slow = edited(qwen, tmp_path / "slow")
    (slow / "tokenizer.json").unlink()
    write_json(slow / "vocab.json", content["model"]["vocab"])
    write_json(slow / "added_tokens.json", {token["content"]: token["id"] for token in content["added_tokens"]})

    for name in ("copy", "anew", "slow"):
        assert findings(run_of(tmp_path / name, weights)) == {}


def test_another_models_tokenizer_is_an_error_with_both_sides(tmp_path: Path, qwen: Path, deepseek: Path) -> None:
    weights = model_folder(tmp_path / "weights", qwen, eos_token_id=151645)
    found = findings(run_of(deepseek, weights))

    assert found.keys() == {"BP560"}
    assert found["BP560"].severity == "error"
    assert found["BP560"].where == "tokenizer.name_or_path"
    for text, names in (
        (found["BP560"].found, ("128,815", "'<｜begin")),
        (found["BP560"].allowed, ("151,669", "0 '!'")),
    ):
        assert all(name in text for name in names)


def test_a_tokenizer_with_more_tokens_is_told_apart(tmp_path: Path, qwen: Path, deepseek: Path) -> None:
    def with_tool(content: dict[str, Any]) -> None:
        content["added_tokens"].append({"id": 151669, "content": "<tool>", "special": True})

    def with_think(content: dict[str, Any]) -> None:
        next(token for token in content["added_tokens"] if token["id"] == 128798)["content"] = "<think>"

    def fewer(content: dict[str, Any]) -> None:
        content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "<think>"]

    def without_list(config: dict[str, Any]) -> None:
        config.pop("added_tokens_decoder")

    weights = model_folder(tmp_path / "weights", qwen, eos_token_id=151645)
    more = edited(qwen, tmp_path / "more", tokenizer=with_tool)
    less = edited(qwen, tmp_path / "less", tokenizer=fewer, config=without_list)
    renamed = edited(deepseek, tmp_path / "renamed", tokenizer=with_think)
    of_deepseek = model_folder(tmp_path / "deepseek", deepseek, eos_token_id=1)
    of_renamed = model_folder(tmp_path / "r1", renamed, eos_token_id=1)

    extended = findings(run_of(more, weights))
    assert extended.keys() == {"BP566"}
    assert "151669 '<tool>'" in extended["BP566"].found
    assert findings(run_of(renamed, of_deepseek)).keys() == {"BP566"}

    assert findings(run_of(less, weights)).keys() == {"BP562"}
    assert findings(run_of(deepseek, of_renamed)).keys() == {"BP562"}

    too_small = {"bridge_overrides": {"model": {"vocab_size": 151669}}}
    assert findings(run_of(more, weights, **too_small)).keys() == {"BP525"}


def test_ends_and_padding_of_another_model(tmp_path: Path, qwen: Path) -> None:
    """The instruct model's tokenizer on base weights, and an end that was made the padding."""
    base = edited(qwen, tmp_path / "base", config=lambda config: config.update(eos_token="<|endoftext|>"))
    weights = model_folder(tmp_path / "weights", base, eos_token_id=151643)
    instruct = model_folder(tmp_path / "instruct", qwen, eos_token_id=[151645, 151643])
    padded = edited(qwen, tmp_path / "padded", config=lambda config: config.update(pad_token="<|im_end|>"))

    found = findings(run_of(qwen, weights))
    assert found.keys() == {"BP563"}
    assert "151645 '<|im_end|>'" in found["BP563"].found
    assert "151643 '<|endoftext|>'" in found["BP563"].allowed
    assert findings(run_of(base, weights)) == findings(run_of(base, instruct)) == {}
    assert findings(run_of(padded, instruct)).keys() == {"BP564"}


def test_a_template_of_ones_own_is_a_note(tmp_path: Path, qwen: Path) -> None:
    weights = model_folder(tmp_path / "weights", qwen, eos_token_id=151645)
    template = json.loads((qwen / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    other = edited(qwen, tmp_path / "other")
    (other / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    same = edited(qwen, tmp_path / "same", config=lambda config: config.pop("chat_template"))
    (same / "chat_template.jinja").write_text(f"{template}\n", encoding="utf-8")

    assert findings(run_of(other, weights)).keys() == {"BP565"}
    assert findings(run_of(same, weights)) == {}


#: Tokens of a small made tokenizer; its end is the last.
_WORDS = ("a", "b", "c", "<|reserved_special_token_0|>", "<|end|>")


def small_tokenizer(folder: Path, *words: str, **config: Any) -> Path:
    """Write a tokenizer whose vocabulary has the words without brackets, and the others as added tokens."""
    words = words or _WORDS
    vocabulary = {word: index for index, word in enumerate(words) if word[0] != "<"}
    extra = [{"id": index, "content": word} for index, word in enumerate(words) if word[0] == "<"]
    write_json(folder / "tokenizer.json", {"model": {"vocab": vocabulary}, "added_tokens": extra})
    write_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>", **config})
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_tokenizer(tmp_path / "small")


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (_WORDS, set()),
        (("a", "b", "c", "<tool>", "<|end|>"), {"BP566"}),
        (("a", "b", "c", "<|reserved_special_token_7|>", "<|end|>"), set()),
        ((*_WORDS, "<tool>"), {"BP566"}),
        (("b", "a", "c", "<tool>", "<|end|>"), {"BP560"}),
        (("a", "b", "c", "<|end|>", "<|reserved_special_token_0|>"), {"BP560"}),
        (("a", "b", "c", "<|reserved_special_token_0|>"), {"BP562"}),
        (("a", "b", "c", "<|reserved_special_token_0|>", "<|stop|>"), {"BP562"}),
    ],
)
def test_small_vocabularies(tmp_path: Path, small: Path, words: tuple[str, ...], codes: set[str]) -> None:
    weights = model_folder(tmp_path / "weights", small, eos_token_id=4)
    tokenizer = small_tokenizer(tmp_path / "mine", *words)

    assert findings(run_of(tokenizer, weights)).keys() == codes


def test_the_weights_of_megatron_tell_their_tokenizer(tmp_path: Path, small: Path) -> None:
    other = small_tokenizer(tmp_path / "other", *reversed(_WORDS))
    weights = tmp_path / "checkpoints"
    run_config = weights / "iter_0000000" / "run_config.yaml"
    write_json(run_config, {"model": {"vocab_size": 5}, "tokenizer": {"tokenizer_model": str(small)}})
    (weights / "latest_checkpointed_iteration.txt").write_text("0", encoding="utf-8")

    assert findings(run_of(small, weights)) == {}
    assert findings(run_of(other, weights)).keys() == {"BP560"}

    shutil.copytree(other, run_config.with_name("tokenizer"))  # beside the weights: surer than a name
    assert findings(run_of(other, weights)) == {}
    assert findings(run_of(small, weights)).keys() == {"BP560"}


def test_the_base_of_an_adapter_is_the_model(tmp_path: Path, small: Path) -> None:
    other = small_tokenizer(tmp_path / "other", *reversed(_WORDS))
    base = model_folder(tmp_path / "base", small, eos_token_id=4)
    adapter = tmp_path / "adapter"
    write_json(adapter / "adapter_config.json", {"base_model_name_or_path": str(base)})
    of_run = tmp_path / "run"
    write_json(of_run / "run_config.yaml", {"peft": {"dim": 8}, "checkpoint": {"pretrained_checkpoint": str(base)}})

    for weights in (adapter, of_run, base):
        lora = {"method": {"kind": "lora"}}
        assert findings(run_of(small, weights, **lora)) == {}
        assert findings(run_of(other, weights, **lora)).keys() == {"BP560"}


def in_cache(hub: Path, name: str, source: Path) -> Path:
    folder = hub / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("0123", encoding="utf-8")
    shutil.copytree(source, folder / "snapshots/0123")
    return folder / "snapshots/0123"


def test_the_cache_of_the_hub_has_the_base(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certain for weights of the base's name, or of none; weights of another name may have another tokenizer."""
    other = small_tokenizer(tmp_path / "other", *reversed(_WORDS))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    in_cache(tmp_path / "hub", "Qwen/Qwen3-8B", model_folder(tmp_path / "base", small, eos_token_id=4))

    for weights in (None, "checkpoints/Qwen3-8B"):
        assert findings(run_of("Qwen/Qwen3-8B", weights)) == findings(run_of(small, weights)) == {}
        assert findings(run_of(other, weights)).keys() == {"BP560"}
    assert findings(run_of(other, "checkpoints/mine")).keys() == {"BP561"}
    assert findings(run_of(small, "checkpoints/mine")) == {}
    (tmp_path / "mine").mkdir()
    assert findings(run_of(other, tmp_path / "mine")).keys() == {"BP561"}


def test_a_size_alone_settles_what_is_far_too_small(tmp_path: Path, small: Path) -> None:
    weights = model_folder(tmp_path / "weights")
    nearly = small_tokenizer(tmp_path / "nearly", "a", "b")
    content = {"model": {"vocab": {"a": 0, "<|end|>": _QWEN_VOCABULARY - 1}}}
    write_json(nearly / "tokenizer.json", content)

    assert findings(run_of(small, weights)).keys() == {"BP561"}
    assert findings(run_of(small)).keys() == {"BP561"}
    assert findings(run_of(nearly, weights)).keys() == {"BP567"}
    assert findings(run_of("some/tokenizer", weights)).keys() == {"BP567"}
    assert findings(run_of("Qwen/Qwen3-8B", weights)) == {}


def test_what_cannot_be_read_is_no_error(tmp_path: Path, small: Path) -> None:
    """Broken JSON, SentencePiece models, GGUF files, a config alone: nothing is known of the vocabulary."""
    for index, (name, content) in enumerate(
        [("tokenizer.json", "{"), ("tokenizer.model", "\x00"), ("model.gguf", ""), ("config.json", "[]")]
    ):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / name).write_text(content, encoding="utf-8")
        weights = model_folder(tmp_path / f"weights{index}", folder)

        assert findings(run_of(folder, weights)).keys() <= {"BP567"}
        assert findings(run_of(small, folder)).keys() == {"BP561"}  # the size that the base has


def test_a_saved_config_is_compared_like_a_recipe(tmp_path: Path, small: Path) -> None:
    other = small_tokenizer(tmp_path / "other", *reversed(_WORDS))
    weights = model_folder(tmp_path / "weights", small, eos_token_id=4)
    values = json.loads(json.dumps(base_values(), default=str))
    values["checkpoint"]["pretrained_checkpoint"] = str(weights)
    values["model"]["vocab_size"] = 5
    for tokenizer, codes in ((small, set()), (other, {"BP560"})):
        values["tokenizer"]["tokenizer_model"] = str(tokenizer)
        write_json(tmp_path / "saved.yaml", values)
        assert findings(tmp_path / "saved.yaml").keys() == codes


def test_packs_count_as_what_they_were_made_with(tmp_path: Path, chatml_tokenizer: Path) -> None:
    """Their tokenizer is compared where its files are here, and its size and ends where they are not."""
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(chatml_tokenizer, tokenizer)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    write_json(tmp_path / "rows.jsonl", {"messages": turns})
    recipe = small_recipe(tmp_path / "rows.jsonl", tokenizer, model={"name": QWEN})
    packs = build(recipe, tmp_path / "packs").output
    same = model_folder(tmp_path / "same", tokenizer, eos_token_id=2)
    other = model_folder(tmp_path / "other", small_tokenizer(tmp_path / "small", "a", "b", "<|end|>"), eos_token_id=2)

    def codes(weights: Path) -> set[str]:
        return set(findings(with_changes(recipe, {"checkpoint__pretrained": str(weights)}), artifact=packs))

    assert (codes(same), codes(other)) == (set(), {"BP560"})
    (same / "generation_config.json").write_text('{"eos_token_id": 1}')
    assert codes(same) == set()  # its own tokenizer ends so

    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tokenizer / name).unlink()
    assert codes(same) == set()  # by the hash in the manifest
    assert codes(other) == {"BP561"}
