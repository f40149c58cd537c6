"""The scripts of docs/recipes.md work with the real megatron-bridge, and new recipes become configs that it accepts."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import bridgepack
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.load import catalogue
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import MethodKind, Wish
from bridgepack.planning.plan import new_recipe
from bridgepack.rules.judging.rule import Severity
from tests.support.docs_blocks import blocks
from tests.support.small_builds import conversations_recipe, write_recipe
from tests.support.upstream_recipes import validate

pytestmark = pytest.mark.bridge

BASE = "qwen3_600m_sft_1gpu_h100_bf16_config"
WISHES: tuple[tuple[str, int, int, MethodKind], ...] = (
    ("Qwen/Qwen3-8B", 16, 32768, "full"),
    ("meta-llama/Llama-3.1-70B-Instruct", 64, 8192, "full"),
    ("openai/gpt-oss-20b", 16, 8192, "lora"),
    ("Qwen/Qwen2-1.5B", 8, 8192, "full"),
    ("Qwen/Qwen2-7B", 8, 16384, "lora"),
    ("qwen2_72b_sft_32gpu_h100_bf16_config", 64, 4096, "full"),
    ("qwen3_4b_peft_1gpu_h100_bf16_config", 8, 16384, "dora"),
)


@pytest.fixture(scope="module")
def workplace(conversations: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with mine.yaml and its packs, artifacts/mine."""
    folder = tmp_path_factory.mktemp("scripts")
    sections = {
        "packing": {"packed_sequence_size": 4096},
        "parallelism": {"num_gpus": 1},
        "batch": {"global_batch_size": 2, "eval_global_batch_size": 1},
        "model": {"name": BASE},
    }
    recipe = conversations_recipe(conversations, name="mine", **sections)
    write_recipe(folder / "mine.yaml", recipe)
    bridgepack.build(recipe, output=folder / "artifacts" / "mine")
    return folder


def test_scripts_run_and_their_configs_validate(
    h100_host: None, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from megatron.bridge.training import finetune as module

    trained: list[Any] = []
    monkeypatch.setattr(module, "finetune", lambda config, forward_step: trained.append((config, forward_step)))
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {"__name__": "script"}
    printed = []
    for block in blocks("python", page="recipes.md"):
        exec(compile(block.text, block.page, "exec"), names)
        printed.append(capsys.readouterr().out)
        assert block.output in (None, printed[-1])

    (before, step), (packed, _), (made, step_for) = trained
    assert before.dataset.offline_packing_specs is None or before.dataset.seq_length != 4096
    for config in (packed, made):
        assert validate(config, 1) is None
        assert config.dataset.offline_packing_specs.packed_train_data_path == "artifacts/mine/training"
        assert config.dataset.seq_length == config.model.seq_length == 4096
        assert config.model.calculate_per_token_loss
    assert step is step_for
    assert any("dataset.offline_packing_specs.packed_train_data_path: " in text for text in printed)
    assert names["recipe"].method.kind == "lora"


def test_script_is_changed_in_three_lines() -> None:
    before, after = (block.text.splitlines() for block in blocks("python", page="recipes.md")[:2])

    assert len([line for line in after if line and line not in before]) == 3


@pytest.mark.parametrize(("model", "num_gpus", "seq_length", "method"), WISHES, ids=str)
def test_new_recipes_become_configs_that_validate(
    h100_host: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    num_gpus: int,
    seq_length: int,
    method: MethodKind,
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = "Qwen/Qwen2-72B" if "_72b_" in model else None
    wish = Wish(name="mine", model=model, num_gpus=num_gpus, seq_length=seq_length, method=method, tokenizer=tokenizer)
    recipe = SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(new_recipe(wish, catalogue())))
    assert recipe.checkpoint.pretrained is not None
    Path(recipe.checkpoint.pretrained).mkdir(parents=True)
    Path(recipe.checkpoint.pretrained, "latest_checkpointed_iteration.txt").touch()
    for split in ("training", "validation"):
        Path("artifacts/mine", split).mkdir(parents=True)
        Path("artifacts/mine", split, "shard-00000-of-00001.idx.parquet").touch()
    Path("artifacts/mine/bridge_metadata.json").write_text("[]")

    config = recipe.to_bridge()

    assert validate(config, num_gpus) is None
    report = check_target(config, CheckOptions(world_size=num_gpus))
    assert [(one.code, one.found) for one in report.findings if one.severity is not Severity.ADVICE] == []
