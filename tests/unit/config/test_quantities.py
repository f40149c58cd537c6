"""Settings of one quantity: a file has one of them, and an override replaces the others."""

import copy
from typing import Any

import pytest

from bridgepack.bridge.wiring import host_settings
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.document import stated_values
from bridgepack.config.load import catalogue_names, load_recipe
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.host_paths import PACK_PATHS, TRAIN_PATH
from bridgepack.config.recipe.packing import BatchConfig, PackingConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.resolved import resolved_view
from bridgepack.records.checks import OVERRIDES
from bridgepack.records.results import put
from tests.support.catalogue import SMALL
from tests.support.messages import mentions

#: Two settings of one quantity in a file.
PAIRS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"batch.global_batch_size": 8}, {"batch.tokens_per_step": 65536}),
    ({"batch.tokens_per_step": 65536}, {"bridge_overrides.train.global_batch_size": 8}),
    ({"batch.global_batch_size": 16}, {"bridge_overrides.train.global_batch_size": 8}),
    ({"schedule.num_epochs": 2.0}, {"schedule.train_iters": 500}),
    ({"schedule.num_epochs": 2.0}, {"bridge_overrides.train.train_iters": 500}),
    ({"schedule.train_iters": 500}, {"bridge_overrides.train.train_samples": 4000}),
    # the host's epochs end with fillers, a recipe's are a number of steps
    ({"schedule.num_epochs": 2.0}, {"bridge_overrides.train.num_epochs": 2}),
    ({"bridge_overrides.train.num_epochs": 2}, {"bridge_overrides.train.train_iters": 500}),
    ({"schedule.warmup_fraction": 0.1}, {"bridge_overrides.scheduler.lr_warmup_iters": 0}),
    (
        {"bridge_overrides.scheduler.lr_warmup_iters": 10},
        {"bridge_overrides.scheduler.lr_warmup_fraction": 0.1},
    ),
    (
        {"bridge_overrides.scheduler.lr_decay_iters": 10},
        {"bridge_overrides.scheduler.lr_decay_samples": 80},
    ),
    ({"schedule.eval_iters": 2}, {"bridge_overrides.validation.eval_iters": 3}),
    ({"schedule.eval_iters": 2}, {"bridge_overrides.train.eval_iters": 3}),
    ({"schedule.eval_interval": 20}, {"bridge_overrides.train.eval_interval": 30}),
    ({"logging.wandb_exp_name": "a"}, {"bridge_overrides.logger.wandb_exp_name": "b"}),
    ({"tokenizer.revision": "a"}, {"bridge_overrides.tokenizer.hf_tokenizer_kwargs.revision": "b"}),
    (
        {"tokenizer.trust_remote_code": False},
        {"bridge_overrides.tokenizer.hf_tokenizer_kwargs.trust_remote_code": True},
    ),
    ({"parallelism.tensor_model_parallel_size": 2}, {"bridge_overrides.model.tensor_model_parallel_size": 4}),
    ({"optimizer.lr": 1e-5}, {"bridge_overrides.optimizer.lr": 2e-5}),
    ({"precision.recipe": "bf16_mixed"}, {"bridge_overrides.mixed_precision": "fp16_mixed"}),
    ({"checkpoint.folder": "runs/a"}, {"bridge_overrides.checkpoint.save": "runs/b"}),
    ({"environment.NCCL_DEBUG": "WARN"}, {"bridge_overrides.env_vars.NCCL_DEBUG": "INFO"}),
    ({"packing.packed_sequence_size": 4096}, {"bridge_overrides.model.seq_length": 2048}),
    ({"data.validation": "b.jsonl"}, {"data.validation_fraction": 0.1}),
    ({"artifact": "artifacts/a"}, {f"{OVERRIDES}.{TRAIN_PATH}": "artifacts/b/training"}),
)
ELSEWHERE = {f"{OVERRIDES}.{path}": f"artifacts/b/{name}" for path, name in PACK_PATHS.items()}
#: The same, of which a change to the second is a part of where packs are, and refused alone.
PARTS = [({"artifact": "artifacts/a"}, {path: value}) for path, value in list(ELSEWHERE.items())[1:]]


def file_of(*settings: dict[str, Any]) -> dict[str, Any]:
    """Return the plain values of a recipe file with some settings."""
    values = copy.deepcopy(SMALL)
    for path, value in ((path, value) for part in settings for path, value in part.items()):
        put(values, path, value)
    return values


@pytest.mark.parametrize(("first", "second"), [*PAIRS, *PARTS], ids=str)
def test_a_file_with_both_is_refused_with_both_names(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping(file_of(first, second))

    assert mentions(str(raised.value), *(path.rpartition(".")[2] for path in first | second))
    assert raised.value.problems[0].field


#: A recipe with most fields that one setting of the host takes as they are; of two that exclude each other, one.
WRITTEN: dict[str, Any] = {
    "model.name": "llama32_1b_sft_1gpu_h100_bf16_config",
    "model.attention_backend": "flash",
    "model.recompute": "full",
    "artifact": "artifacts/a",
    "checkpoint.pretrained": "weights",
    "checkpoint.folder": "runs/a",
    "checkpoint.save_interval": 10,
    "data.validation": "b.jsonl",
    "tokenizer.chat_template": "a.jinja",
    "tokenizer.revision": "main",
    "tokenizer.trust_remote_code": True,
    "method.kind": "lora",
    "method.target_modules": ["linear_qkv"],
    **{f"method.{name}": value for name, value in {"dim": 8, "alpha": 16, "dropout": 0.1}.items()},
    **{
        f"parallelism.{name}_parallel_size": 1 for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    },
    **{f"optimizer.{name}": 0.1 for name in ("lr", "min_lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad")},
    **{f"batch.{name}": 1 for name in ("micro_batch_size", "eval_micro_batch_size")},
    **{f"batch.{name}": 8 for name in ("global_batch_size", "eval_global_batch_size")},
    **{f"schedule.{name}": 20 for name in ("train_iters", "eval_iters", "eval_interval")},
    "schedule.warmup_fraction": 0.1,
    "schedule.lr_decay_style": "cosine",
    "packing.seed": 1,
    "packing.pad_seq_to_mult": 1,
    "packing.max_sequence_length": 16,
    "packing.pad_cu_seqlens": True,
    "precision.recipe": "bf16_mixed",
    **{f"logging.{name}": "a" for name in ("tensorboard_dir", "wandb_project", "wandb_exp_name")},
    **{f"logging.{name}": "a" for name in ("mlflow_experiment", "mlflow_run_name")},
    "logging.log_interval": 5,
    "environment.NCCL_DEBUG": "WARN",
}
#: Path of the host that a field decides where nothing else does, and which may say something else beside it.
MAY_DIFFER = {
    "dataset.seed": "the seed of the loader, which need not be that of the packs",
    "checkpoint.load": "a checkpoint of another run to resume from",
}


def test_every_field_is_refused_beside_another_value_of_the_path_it_is_wired_to() -> None:
    recipe = SFTRecipe.from_mapping(file_of(WRITTEN))
    settings = [setting for setting in host_settings(recipe) if setting.origin == "recipe"]
    taken = {setting.path for setting in settings if not _is_refused_beside(setting.path, setting.value)}

    assert taken == {path for path in MAY_DIFFER if path in {setting.path for setting in settings}}
    assert len(settings) > 40


def _is_refused_beside(path: str, value: Any) -> bool:
    try:
        SFTRecipe.from_mapping(file_of(WRITTEN, {f"{OVERRIDES}.{path}": _unlike(value)}))
    except ConfigError:
        return True
    return False


def _unlike(value: Any) -> Any:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else f"not {value}"


#: What the packs decide of the data, and a user may say otherwise without a finding.
CHOICES = {
    "dataset.dataset_root": "nothing in it is read where all packs have paths",
    "dataset.do_validation": "off, the run evaluates nothing; BP206 tells of the other way",
    "dataset.do_test": "BP207 tells of it where there is a test.jsonl",
}


def test_an_override_of_what_the_packs_decide_is_refused_or_found() -> None:
    """Settings of the data that follow from an artifact, each beside another value."""

    def codes(values: dict[str, Any]) -> set[str]:
        report = check_target(SFTRecipe.from_mapping(values), CheckOptions(looks_at_files=False))
        return {finding.code for finding in report.findings}

    usual = codes(file_of(WRITTEN))
    settings = [
        setting
        for setting in host_settings(SFTRecipe.from_mapping(file_of(WRITTEN)))
        if setting.origin == "derived" and setting.path.startswith(("dataset.", "tokenizer."))
    ]
    silent = {
        setting.path
        for setting in settings
        if not _is_refused_beside(setting.path, setting.value)
        and codes(file_of(WRITTEN, {f"{OVERRIDES}.{setting.path}": _unlike(setting.value)})) <= usual
    }

    assert silent == set(CHOICES)
    assert len(settings) > 10


#: The first setting of the others may be absent, too.
EITHER_WAY = [pair for pair in PAIRS if "packing.packed_sequence_size" not in pair[0]]


@pytest.mark.parametrize(("old", "new"), [*PAIRS, *((second, first) for first, second in EITHER_WAY)], ids=str)
def test_an_override_replaces_and_says_so(
    old: dict[str, Any], new: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    recipe = load_recipe(file_of(old), new)
    (old_path,), ((new_path, value),) = old, new.items()
    values = dict(_leaves(stated_values(recipe)))

    assert [(pair.old.place, pair.new.place) for pair in recipe.replacements] == [(old_path, new_path)]
    assert caplog.messages == [recipe.replacements[0].text()]
    assert values.get(new_path, values.get(old_path)) == value
    assert new_path not in values or old_path not in values
    assert stated_values(SFTRecipe.from_mapping(stated_values(recipe))) == stated_values(recipe)


def test_an_artifact_replaces_every_override_of_its_packs_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    recipe = load_recipe(file_of(ELSEWHERE), {"artifact": "artifacts/a"})

    assert [pair.old.place for pair in recipe.replacements] == list(ELSEWHERE)
    assert caplog.messages == [pair.text() for pair in recipe.replacements]
    assert (recipe.artifact, recipe.bridge_overrides) == ("artifacts/a", {})


@pytest.mark.parametrize(("artifact", "part"), PARTS, ids=str)
def test_a_part_of_where_packs_are_is_refused(artifact: dict[str, Any], part: dict[str, Any]) -> None:
    (path,) = part
    for values, changes in ((file_of(part), {}), (file_of(artifact), part), (file_of(), part)):
        with pytest.raises(ConfigError) as raised:
            load_recipe(values, changes)
        assert mentions(str(raised.value), path, TRAIN_PATH)

    assert load_recipe(file_of(ELSEWHERE)).replacements == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"bridge_overrides.train.global_batch_size": 8},
        {"artifact": "artifacts/b", **ELSEWHERE},
        {"parallelism.tensor_model_parallel_size": 2, "bridge_overrides.model.tensor_model_parallel_size": 2},
        {"schedule.train_iters": 5, "bridge_overrides.train.num_epochs": None},
        {"bridge_overrides.scheduler.lr_warmup_iters": 0, "bridge_overrides.scheduler.lr_warmup_fraction": 0.1},
        {"schedule.eval_iters": 2, "bridge_overrides.train.eval_iters": 2},
        {"tokenizer.revision": "a", "bridge_overrides.tokenizer.hf_tokenizer_kwargs.revision": "a"},
        {"packing.seed": 7, "bridge_overrides.dataset.seed": 5},
        {"checkpoint.folder": "runs/a", "bridge_overrides.checkpoint.load": "runs/b"},
        {"precision.recipe": "bf16_mixed", "bridge_overrides.mixed_precision.grad_reduce_in_fp32": False},
        {"batch.tokens_per_step": 98304, "batch.micro_batch_size": 3},
        {"data.validation": "b.jsonl", "data.validation_fraction": 0.0},
        {"method.kind": "full", "bridge_overrides.peft": None},
        {"method.kind": "lora", "bridge_overrides.peft.target_modules": None},
    ],
    ids=str,
)
def test_what_is_no_contradiction_is_taken(settings: dict[str, Any]) -> None:
    recipe = SFTRecipe.from_mapping(file_of(settings))

    assert recipe.replacements == ()


@pytest.mark.parametrize(
    ("field", "path", "rivals"),
    [
        (
            ("packing.packed_sequence_size", 4096),
            "model.seq_length",
            ("dataset.seq_length", "dataset.offline_packing_specs.packed_sequence_size"),
        ),
        (("schedule.eval_iters", 2), "train.eval_iters", ("validation.eval_iters",)),
        (("tokenizer.revision", "a"), "tokenizer.hf_tokenizer_kwargs.revision", ()),
    ],
    ids=str,
)
def test_what_is_said_twice_is_the_run_s_everywhere(field: tuple[str, Any], path: str, rivals: tuple[str, ...]) -> None:
    name, value = field
    recipe = SFTRecipe.from_mapping(file_of({name: value, f"bridge_overrides.{path}": value}))
    settings = {setting.path: setting.value for setting in host_settings(recipe)}
    (shown,) = [item.value for item in resolved_view(recipe).fields if item.field == name]

    assert [settings[rival] for rival in (path, *rivals)] == [value] * (1 + len(rivals))
    assert shown == value


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ({"method.kind": "lora"}, "peft"),
        ({"schedule.eval_iters": 2}, "validation.eval_iters"),
        ({"checkpoint.folder": "runs/a"}, "checkpoint.save"),
    ],
    ids=str,
)
def test_a_null_that_takes_a_field_s_value_away_is_refused(field: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping(file_of(field, {f"bridge_overrides.{path}": None}))

    assert mentions(str(raised.value), *field, f"bridge_overrides.{path} is null")
    SFTRecipe.from_mapping(file_of({f"bridge_overrides.{path}": None}))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=str)
def test_two_overrides_of_one_quantity_are_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        load_recipe(SMALL, first | second)


def test_a_value_that_only_the_host_takes_stays_an_override() -> None:
    recipe = load_recipe(
        file_of({"cuda_graphs.implementation": "none"}), {"bridge_overrides.model.cuda_graph_impl": "local"}
    )

    assert recipe.bridge_overrides == {"model": {"cuda_graph_impl": "local"}}
    assert "implementation" not in recipe.cuda_graphs.model_fields_set


def test_a_source_s_share_replaces_its_epochs() -> None:
    recipe = load_recipe(file_of({"data.train": [{"path": "a.jsonl", "epochs": 2.0}]}), {"data.train.0.weight": 0.5})

    assert stated_values(recipe)["data"]["train"] == [{"path": "a.jsonl", "weight": 0.5}]


def test_objects_of_python_are_refused_as_files_are() -> None:
    recipe = SFTRecipe(
        name="small",
        data=SMALL["data"],
        tokenizer=TokenizerConfig(name_or_path="t"),
        packing=PackingConfig(packed_sequence_size=4096),
        batch=BatchConfig(global_batch_size=8, tokens_per_step=65536),
    )

    with pytest.raises(ConfigError, match=r"global_batch_size is 8, and batch\.tokens_per_step is 65536"):
        load_recipe(recipe)


def test_a_batch_size_changes_every_recipe_of_the_catalogue() -> None:
    recipes = [load_recipe(name, {"batch.global_batch_size": 8}) for name in catalogue_names()]

    assert len(recipes) > 140
    assert all((recipe.batch.global_batch_size, recipe.batch.tokens_per_step) == (8, None) for recipe in recipes)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("schedule.learning_rate", "optimizer.lr"),
        ("seed", "packing.seed"),
        ("model.tensor_model_parallel_size", "parallelism.tensor_model_parallel_size"),
        ("batch.train_iters", "schedule.train_iters"),
        ("max_steps", "schedule.train_iters"),
        ("lora_rank", "method.dim"),
    ],
)
def test_a_field_of_another_section_is_pointed_to(path: str, meant: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_recipe(SMALL, {path: 1})

    assert str(raised.value).endswith(f"Did you mean {meant}?")


def _leaves(values: dict[str, Any], prefix: str = "") -> Any:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
