"""A recipe's settings in the host, and where each comes from."""

from typing import Any

import pytest

from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.config.recipe.recipe import SFTRecipe

BASE: dict[str, Any] = {
    "name": "mine",
    "data": {"train": "rows.jsonl", "validation_fraction": 0.1},
    "tokenizer": {"name_or_path": "tokenizer"},
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"context_parallel_size": 2, "num_gpus": 16},
    "batch": {"global_batch_size": 32},
}
PACKS = Packs(folder="packs", num_packs={"training": 100, "validation": 20})


def settings(*, packs: Packs | None = None, **sections: Any) -> dict[str, Setting]:
    recipe = SFTRecipe.from_mapping({**BASE, **sections})
    return {setting.path: setting for setting in host_settings(recipe, packs=packs)}


def test_what_is_written_is_told_from_defaults_and_what_follows() -> None:
    found = settings()
    assert (found["model.context_parallel_size"].value, found["model.context_parallel_size"].origin) == (2, "recipe")
    assert found["model.tensor_model_parallel_size"].origin == "default"
    multiple = found["dataset.offline_packing_specs.pad_seq_to_mult"]
    assert (multiple.value, multiple.origin, multiple.field) == (4, "derived", "packing.pad_seq_to_mult")
    assert multiple.because


def test_steps_follow_from_the_packs() -> None:
    found = settings(packs=PACKS, schedule={"num_epochs": 2})
    assert found["train.train_iters"].value == 7  # ceil(2 x 100 / 32)
    assert found["train.num_epochs"].value is None
    assert found["scheduler.lr_warmup_iters"].value == 1  # ceil(0.05 x 7)
    assert found["validation.eval_global_batch_size"].value == 16  # 20 packs over 8 ranks
    assert found["validation.eval_iters"].value == 1
    assert found["dataset.offline_packing_specs.packed_train_data_path"].value == "packs/training"


@pytest.mark.parametrize(("slots", "packs_per_step"), [(131072, 32), (4096, 8), (150000, 40)])
def test_token_slots_become_packs_that_ranks_share_evenly(slots: int, packs_per_step: int) -> None:
    found = settings(batch={"tokens_per_step": slots})
    assert found["train.global_batch_size"].value == packs_per_step


def test_the_learning_rate_follows_the_method() -> None:
    assert settings()["optimizer.lr"].value == 5e-6
    assert settings(method={"kind": "lora"})["optimizer.lr"].value == 1e-4
    assert settings(optimizer={"lr": 2e-5})["optimizer.lr"].origin == "recipe"


def test_an_override_of_a_recipe_keeps_what_was_not_written_unwritten() -> None:
    recipe = SFTRecipe.from_mapping(BASE).override({"cuda_graphs": {"implementation": "full_iteration"}})
    assert recipe.cuda_graphs.implementation == "full_iteration"
    found = {setting.path: setting.origin for setting in host_settings(recipe)}
    assert found["model.cuda_graph_impl"] == "recipe"
    assert found["optimizer.weight_decay"] == "default"
