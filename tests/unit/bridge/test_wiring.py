"""Settings of the host that a recipe and its packs decide, and where each comes from."""

from typing import Any

import pytest

from bridgepack.bridge.wiring import SPECS, Packs, Setting, host_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.catalogue import SMALL
from tests.support.small_builds import with_changes


def values_of(num_packs: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    """Return path -> value of the settings of a recipe of 8 GPUs whose steps take 8 packs."""
    recipe = {
        **SMALL,
        "data": {"train": "a.jsonl", "validation": "b.jsonl"},
        "batch": {"global_batch_size": 8},
        "parallelism": {"num_gpus": 8},
    }
    changed = with_changes(SFTRecipe.from_mapping(recipe), changes)
    packs = None if num_packs is None else Packs(folder="packs", num_packs=num_packs)
    return {one.path: one.value for one in host_settings(changed, packs=packs)}


#: 8 copies evaluate what 2 copies train.
FEWER_TRAIN = {"parallelism__context_parallel_size": 4, "parallelism__eval_context_parallel_size": 1}
FOUR = {"batch__global_batch_size": 4}


@pytest.mark.parametrize(
    ("changes", "num_validation", "batch", "iters"),
    [
        ({}, 7, 8, 0),  # fewer packs than ranks: the loader has no whole step
        ({}, 8, 8, 1),
        ({}, 15, 8, 1),
        ({}, 16, 8, 2),
        ({"parallelism__num_gpus": 2}, 7, 6, 1),  # as many as its ranks can share
        ({"parallelism__num_gpus": 2}, 8, 8, 1),
        ({"parallelism__num_gpus": 2}, 1, 2, 0),
        ({"parallelism__num_gpus": 2, "batch__eval_micro_batch_size": 2}, 7, 4, 1),
        ({"parallelism__num_gpus": None}, 7, 8, 0),
        ({"batch__eval_global_batch_size": 16}, 7, 16, 1),  # BP604 reports it
        ({"batch__eval_global_batch_size": 16}, 47, 16, 2),
        ({**FEWER_TRAIN, **FOUR}, 2, 8, 0),
        ({**FEWER_TRAIN, **FOUR}, 9, 8, 1),
        ({**FEWER_TRAIN, "batch__global_batch_size": 20}, 33, 16, 2),
        ({"parallelism__eval_context_parallel_size": 2}, 17, 8, 2),
        ({"schedule__eval_iters": 3}, 7, 8, 3),
    ],
)
def test_evaluation_takes_what_its_ranks_can_share(
    changes: dict[str, Any], num_validation: int, batch: int, iters: int
) -> None:
    found = values_of({"training": 64, "validation": num_validation}, **changes)

    assert found["validation.eval_global_batch_size"] == batch
    assert found["validation.eval_iters"] == iters


@pytest.mark.parametrize(
    ("changes", "batch"),
    [
        ({}, 8),
        ({**FEWER_TRAIN, **FOUR}, 8),
        ({**FEWER_TRAIN, "batch__global_batch_size": 20}, 16),
        ({"batch__global_batch_size": 12}, 12),  # BP602 and BP603 report it
        ({"parallelism__num_gpus": 6, "parallelism__context_parallel_size": 4}, 8),
    ],
)
def test_evaluation_without_known_packs_takes_as_many_as_training(changes: dict[str, Any], batch: int) -> None:
    found = values_of(**changes)

    assert found["validation.eval_global_batch_size"] == batch
    assert "validation.eval_iters" not in found


def test_runs_without_validation_do_not_evaluate() -> None:
    assert values_of(data__validation=None)["validation.eval_iters"] == 0
    assert values_of({"training": 64}, data__validation=None)["validation.eval_iters"] == 0


@pytest.mark.parametrize(
    ("changes", "num_packs", "iters"),
    [
        ({}, 64, 8),
        ({}, 65, 9),
        ({}, 3, 1),
        ({"schedule__num_epochs": 2.5}, 64, 20),
        ({"schedule__num_epochs": 0.01}, 64, 1),
        ({"schedule__train_iters": 5}, 64, 5),
    ],
)
def test_a_run_has_the_steps_of_its_packs(changes: dict[str, Any], num_packs: int, iters: int) -> None:
    found = values_of({"training": num_packs, "validation": 8}, **changes)

    assert found["train.train_iters"] == iters
    assert found["validation.eval_interval"] == max(iters // 10, 1)


@pytest.mark.parametrize(
    ("tokens", "num_gpus", "batch"),
    [(8192, 2, 2), (4096 * 5, 2, 4), (4096 * 6, 2, 6), (4096 * 7, 2, 8), (1, 2, 2), (4096 * 5, None, 5)],
)
def test_batches_of_tokens_are_multiples_of_the_ranks(tokens: int, num_gpus: int | None, batch: int) -> None:
    sizes = {"packing__packed_sequence_size": 4096, "packing__max_sequence_length": None}
    found = values_of(**sizes, batch={"tokens_per_step": tokens}, parallelism__num_gpus=num_gpus)

    assert found["train.global_batch_size"] == batch


@pytest.mark.parametrize(
    ("changes", "expected", "absent"),
    [
        ({}, {"model.cuda_graph_impl": "none"}, ["model.cuda_graph_modules", "model.use_te_rng_tracker"]),
        (
            {"cuda_graphs": {"implementation": "transformer_engine", "modules": ["mlp"]}},
            {"model.cuda_graph_modules": ["mlp"], "model.use_te_rng_tracker": True, "rng.te_rng_tracker": True},
            ["rerun_state_machine.check_for_nan_in_loss", "ddp.check_for_nan_in_grad"],
        ),
        (
            {"cuda_graphs": {"implementation": "full_iteration"}},
            {
                "rerun_state_machine.check_for_nan_in_loss": False,
                "ddp.check_for_nan_in_grad": False,
                "rng.te_rng_tracker": True,
            },
            ["model.cuda_graph_modules"],
        ),
        (
            {"model": {"name": "org/model", "recompute": "full"}},
            {
                "model.hf_model_id": "org/model",
                "model.recompute_granularity": "full",
                "model.recompute_method": "uniform",
                "model.recompute_num_layers": 1,
            },
            ["model.attention_backend"],
        ),
        (
            {"model": {"name": "a_function", "recompute": "selective", "attention_backend": "fused"}},
            {
                "model.recompute_granularity": "selective",
                "model.recompute_method": None,
                "model.recompute_num_layers": None,
                "model.attention_backend": "fused",
            },
            ["model.hf_model_id"],
        ),
        (
            {"model": {"name": "a_function", "recompute": "none"}},
            {"model.recompute_granularity": None, "model.recompute_method": None},
            ["model.attention_backend"],
        ),
        ({"model": {"name": "a_function"}}, {}, ["model.recompute_granularity", "model.attention_backend"]),
        ({}, {}, ["model.hf_model_id", "model.recompute_granularity", "tokenizer.chat_template_path"]),
        ({"optimizer__lr": 0.5}, {"optimizer.lr": 0.5}, ["peft.dim"]),
        ({"method": {"kind": "lora", "dim": 7}}, {"peft.dim": 7}, []),
        (
            {"tokenizer__chat_template": "chat.jinja", "tokenizer__revision": "main"},
            {"tokenizer.chat_template_path": "chat.jinja", "tokenizer.hf_tokenizer_kwargs.revision": "main"},
            ["tokenizer.hf_tokenizer_kwargs.trust_remote_code"],
        ),
        (
            {"packing__pad_seq_to_mult": 24, "packing__packed_sequence_size": 48},
            {"dataset.offline_packing_specs.pad_seq_to_mult": 24},
            ["dataset.enable_in_batch_packing"],
        ),
        (
            {"data__validation": None},
            {"dataset.do_validation": False, "dataset.do_test": False, "dataset.enable_offline_packing": True},
            [],
        ),
        (
            {"packing__mode": "in_batch", "preprocessing__kind": "chat", "tokenizer__trust_remote_code": True},
            {"dataset.enable_in_batch_packing": True, "dataset.trust_remote_code": True},
            ["dataset.enable_offline_packing", "dataset.dataloader_type"],
        ),
        ({"packing__mode": "none", "preprocessing__kind": "chat"}, {"dataset.enable_in_batch_packing": False}, []),
        ({"environment": {"A": "b"}}, {"env_vars.A": "b"}, []),
        ({"checkpoint__folder": "runs"}, {"checkpoint.save": "runs", "checkpoint.load": "runs"}, []),
    ],
)
def test_what_a_recipe_says_is_a_setting(changes: dict[str, Any], expected: dict[str, Any], absent: list[str]) -> None:
    found = values_of(**changes)

    assert {path: found.get(path, "absent") for path in expected} == expected
    assert not found.keys() & set(absent)


@pytest.mark.parametrize(
    ("changes", "num_packs", "expected"),
    [
        ({"schedule__warmup_fraction": 0.1}, 8 * 25, {"lr_warmup_iters": 3, "lr_warmup_fraction": None}),
        ({"schedule__warmup_fraction": 0.1}, 8 * 2, {"lr_warmup_iters": 1, "lr_warmup_fraction": None}),
        ({"schedule__warmup_fraction": 0.1}, 8, {"lr_warmup_iters": 0, "lr_warmup_fraction": None}),
        ({"schedule__warmup_fraction": 0.1}, None, {"lr_warmup_iters": 0, "lr_warmup_fraction": 0.1}),
    ],
)
def test_the_learning_rate_warms_up_over_whole_steps(
    changes: dict[str, Any], num_packs: int | None, expected: dict[str, Any]
) -> None:
    found = values_of(None if num_packs is None else {"training": num_packs}, **changes)

    assert {name: found[f"scheduler.{name}"] for name in expected} == expected
    assert found["scheduler.lr_decay_iters"] is None
    assert (found["train.train_iters"] is None) == (num_packs is None)
    assert (found["train.num_epochs"] is None) == (num_packs is not None)


def test_without_known_packs_whole_epochs_are_trained() -> None:
    assert values_of()["train.num_epochs"] == 1
    assert values_of(schedule__num_epochs=1.5)["train.num_epochs"] == 2
    assert values_of(schedule__eval_interval=7)["validation.eval_interval"] == 7


PLACES = ("packed_train_data_path", "packed_val_data_path", "packed_metadata_path")


@pytest.mark.parametrize(
    ("num_packs", "changes", "places"),
    [
        ({"training": 8}, {}, ["packs/training", "packs/validation", "packs/bridge_metadata.json"]),
        ({"training": 8}, {"data__validation": None}, ["packs/training", None, "packs/bridge_metadata.json"]),
        (None, {"artifact": "a"}, ["a/training", "a/validation", "a/bridge_metadata.json"]),
        (None, {}, ["absent"] * 3),
    ],
)
def test_packs_are_read_from_their_folder(
    num_packs: dict[str, int] | None, changes: dict[str, Any], places: list[str | None]
) -> None:
    found = values_of(num_packs, **changes)

    assert [found.get(f"dataset.offline_packing_specs.{name}", "absent") for name in PLACES] == places
    assert found["dataset.dataset_kwargs.pad_to_max_length"] is True
    assert found["model.calculate_per_token_loss"] is True
    assert found["ddp.average_in_collective"] is False


@pytest.mark.parametrize(
    ("artifact", "num_packs", "others"),
    [
        (None, None, ["absent", "absent"]),
        (None, {"training": 8}, ["absent", "absent"]),  # as `recipes show` forecasts the packs of a build
        ("b", None, ["b/validation", "b/bridge_metadata.json"]),
    ],
)
def test_overrides_that_name_packs_leave_nothing_of_another_folder(
    artifact: str | None, num_packs: dict[str, int] | None, others: list[str]
) -> None:
    overrides = {"dataset": {"offline_packing_specs": {"packed_train_data_path": "b/training"}}}
    found = values_of(num_packs, artifact=artifact, bridge_overrides=overrides)

    assert [found.get(f"{SPECS}.{name}", "absent") for name in PLACES] == ["b/training", *others]
    assert found.get("dataset.dataset_root") == artifact


@pytest.mark.parametrize(
    ("kind", "name"),
    [("chat", "ChatSFTPreprocessingConfig"), ("prompt_completion", "PromptCompletionSFTPreprocessingConfig")],
)
def test_the_host_is_told_how_rows_were_made(kind: str, name: str) -> None:
    found = values_of(preprocessing__kind=kind)["dataset.preprocessing"]

    assert found["_target_"] == f"megatron.bridge.data.sft_processing.{name}"
    for other in ("text", "tokenized"):
        assert values_of(preprocessing__kind=other)["dataset.preprocessing"] is None
    assert "dataset.trust_remote_code" not in values_of(packing__mode="none", preprocessing__kind=kind)


def test_runs_have_the_recipe_s_name_in_trackers() -> None:
    named = values_of(logging={"wandb_project": "mine", "wandb_exp_name": "other"})

    assert "logger.wandb_exp_name" not in values_of()
    assert values_of(logging={"wandb_project": "mine"})["logger.wandb_exp_name"] == "small"
    assert named["logger.wandb_exp_name"] == "other"


BASE: dict[str, Any] = {
    **SMALL,
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"context_parallel_size": 2, "num_gpus": 16},
    "batch": {"global_batch_size": 32},
}


def settings(changes: dict[str, Any] | None = None, **sections: Any) -> dict[str, Setting]:
    recipe = SFTRecipe.from_mapping({**BASE, **sections}).override(changes or {})
    return {setting.path: setting for setting in host_settings(recipe)}


def test_what_is_written_is_told_from_defaults_and_what_follows() -> None:
    found = settings({"cuda_graphs": {"implementation": "full_iteration"}})
    assert (found["model.context_parallel_size"].value, found["model.context_parallel_size"].origin) == (2, "recipe")
    assert (found["model.cuda_graph_impl"].value, found["model.cuda_graph_impl"].origin) == ("full_iteration", "recipe")
    assert found["model.tensor_model_parallel_size"].origin == found["optimizer.weight_decay"].origin == "default"
    multiple = found["dataset.offline_packing_specs.pad_seq_to_mult"]
    assert (multiple.value, multiple.origin, multiple.field) == (4, "derived", "packing.pad_seq_to_mult")
    assert multiple.because


def test_token_slots_become_packs_that_ranks_share_evenly() -> None:
    found = [settings(batch={"tokens_per_step": slots}) for slots in (131072, 4096, 150000)]
    assert [one["train.global_batch_size"].value for one in found] == [32, 8, 40]


def test_the_learning_rate_follows_the_method() -> None:
    assert settings()["optimizer.lr"].value == 5e-6
    assert settings(method={"kind": "lora"})["optimizer.lr"].value == 1e-4
    assert settings(optimizer={"lr": 2e-5})["optimizer.lr"].origin == "recipe"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"bridge_overrides__train__global_batch_size": 4},
            {"train.global_batch_size": 4, "validation.eval_global_batch_size": 4, "train.train_iters": 16},
        ),
        (
            {"bridge_overrides__train__train_iters": 20},
            {"train.num_epochs": None, "scheduler.lr_warmup_iters": 1, "validation.eval_interval": 2},
        ),
        (
            {"bridge_overrides__train__num_epochs": 2},
            {"train.train_iters": None, "train.num_epochs": 2, "validation.eval_interval": 1},
        ),
        (
            {"bridge_overrides__scheduler__lr_warmup_fraction": 0.5},
            {"scheduler.lr_warmup_iters": 0, "scheduler.lr_warmup_fraction": 0.5},
        ),
        (
            {"bridge_overrides__scheduler__lr_warmup_iters": 3},
            {"scheduler.lr_warmup_iters": 3, "scheduler.lr_warmup_fraction": None},
        ),
        (
            {"bridge_overrides__model__context_parallel_size": 2},
            {"model.context_parallel_size": 2, "dataset.offline_packing_specs.pad_seq_to_mult": 1},
        ),
        ({"parallelism__sequence_parallel": True}, {"model.sequence_parallel": False}),
        ({"bridge_overrides__model__sequence_parallel": True}, {"model.sequence_parallel": False}),
        (
            {"parallelism__sequence_parallel": True, "bridge_overrides__model__tensor_model_parallel_size": 2},
            {"model.sequence_parallel": True},
        ),
    ],
    ids=str,
)
def test_what_follows_from_an_override_follows_it(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    values = values_of({"training": 64, "validation": 8}, **changes)

    assert {path: values[path] for path in expected} == expected
