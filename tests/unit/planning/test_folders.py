"""A new recipe for a model in a folder: its own config, weights and tokenizer, whatever the folder is called."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bridgepack.config.load import CatalogueEntry, catalogue
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import Wish
from bridgepack.errors import ConfigError
from bridgepack.planning.plan import new_recipe
from tests.support.hub_configs import model_configs


@pytest.fixture(scope="module")
def entries() -> tuple[CatalogueEntry, ...]:
    """Return the catalogue."""
    return catalogue()


def _folder(path: Path, model: str, *files: str) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(model_configs()[model]))
    for name in files:
        (path / name).write_text("{}")
    return path


def _new(entries: tuple[CatalogueEntry, ...], model: str) -> tuple[SFTRecipe, str]:
    text = new_recipe(Wish(name="mine", model=model, num_gpus=16, seq_length=4096), entries)
    return SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(text)), text


@pytest.mark.parametrize(
    ("name", "model", "origin"),
    [
        ("Llama-3-70B", "Qwen/Qwen3-8B", "qwen3_8b_sft_4gpu_h100_bf16_recipe"),
        ("Qwen3-8B", "Qwen/Qwen3-0.6B", "qwen3_600m_sft_1gpu_h100_bf16_recipe"),
        ("Qwen3-8B", "Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b_sft_"),
        ("Nemotron-3-Nano-30B-A3B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_3_nano_"),
    ],
)
def test_the_config_counts_and_not_the_folder_s_name(
    tmp_path: Path, entries: tuple[CatalogueEntry, ...], name: str, model: str, origin: str
) -> None:
    folder = str(_folder(tmp_path / name, model, "model.safetensors", "tokenizer.json"))

    recipe, text = _new(entries, folder)

    assert recipe.model is not None
    assert (recipe.model.name, recipe.checkpoint.pretrained, recipe.tokenizer.name_or_path) == (folder,) * 3
    assert f"# Made by `bridgepack new`: topology and settings from {origin}" in text


def test_weights_that_are_not_in_the_folder_are_imported(tmp_path: Path, entries: tuple[CatalogueEntry, ...]) -> None:
    recipe, _ = _new(entries, str(_folder(tmp_path / "mine-8b", "Qwen/Qwen3-8B", "tokenizer.json")))

    assert recipe.checkpoint.pretrained == "checkpoints/mine-8b"


def test_a_folder_without_vocabulary_wants_a_tokenizer(tmp_path: Path, entries: tuple[CatalogueEntry, ...]) -> None:
    """BP544 would refuse a recipe that names the folder."""
    folder = str(_folder(tmp_path / "mine", "Qwen/Qwen3-8B", "model.safetensors", "tokenizer_config.json"))

    with pytest.raises(ConfigError, match=r"--model is .*, a folder .*tokenizer\.json, .* Add --tokenizer"):
        _new(entries, folder)
    wish = Wish(name="mine", model=folder, num_gpus=16, seq_length=4096, tokenizer="Qwen/Qwen3-8B")
    assert "name_or_path: Qwen/Qwen3-8B" in new_recipe(wish, entries)


def test_a_folder_here_is_named_as_one(
    tmp_path: Path, entries: tuple[CatalogueEntry, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(tmp_path / "base", "Qwen/Qwen3-8B", "model.safetensors", "tokenizer.json")
    monkeypatch.chdir(tmp_path)

    recipe, _ = _new(entries, "base")

    assert recipe.model is not None
    assert (recipe.model.name, recipe.checkpoint.pretrained) == ("./base", "./base")


def test_checkpoints_of_the_host_name_their_model(tmp_path: Path, entries: tuple[CatalogueEntry, ...]) -> None:
    newest = tmp_path / "imported" / "iter_0000000"
    (newest / "tokenizer").mkdir(parents=True)
    (newest / "tokenizer" / "tokenizer.json").write_text("{}")
    (tmp_path / "imported" / "latest_checkpointed_iteration.txt").write_text("0")
    (newest / "run_config.yaml").write_text("model: {hf_model_id: Qwen/Qwen3-8B}\n")

    recipe, _ = _new(entries, str(tmp_path / "imported"))

    assert recipe.model is not None
    assert recipe.model.name.startswith("qwen3_8b_")
    assert recipe.checkpoint.pretrained == str(tmp_path / "imported")
    assert recipe.tokenizer.name_or_path == str(newest / "tokenizer")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("adapter_config.json", '{"base_model_name_or_path": "Qwen/Qwen3-8B"}', "an adapter of 'Qwen/Qwen3-8B'; "),
        ("run_config.yaml", "model: {num_layers: 2}", "not name their model"),
        ("README.md", "x", "config.json cannot be read"),
    ],
)
def test_folders_without_a_model_are_refused(
    tmp_path: Path, entries: tuple[CatalogueEntry, ...], file: str, text: str, words: str
) -> None:
    (tmp_path / file).write_text(text)

    with pytest.raises(ConfigError) as raised:
        _new(entries, str(tmp_path))
    assert words in str(raised.value)
