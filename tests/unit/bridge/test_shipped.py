"""Names of the host's own recipes, in the forms in which users write them."""

import pytest

from bridgepack.bridge.shipped import is_shipped_model, shipped_name
from bridgepack.config.recipe.training import ModelConfig


@pytest.mark.parametrize(
    "name",
    [
        "qwen3_8b_sft_4gpu_h100_bf16_config",
        "qwen3_8b_sft_4gpu_h100_bf16",
        "bridge:qwen3_8b_sft_4gpu_h100_bf16_config",
        "bridge:qwen3_8b_sft_4gpu_h100_bf16",
    ],
)
def test_name_of_the_function(name: str) -> None:
    assert shipped_name(name) == "qwen3_8b_sft_4gpu_h100_bf16_config"
    assert is_shipped_model(ModelConfig(name=name))


def test_hub_ids_and_folders_are_no_shipped_recipes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model").mkdir()

    assert not is_shipped_model(ModelConfig(name="Qwen/Qwen3-8B"))
    assert not is_shipped_model(ModelConfig(name="my_model"))
    assert not is_shipped_model(ModelConfig(name=str(tmp_path / "my_model")))
