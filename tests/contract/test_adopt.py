"""Configs of the real megatron-bridge are read back as recipes, and corrected for packed rows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.adopting.adopt import as_written, differences, from_bridge, pack_for
from bridgepack.bridge.live import copy_of
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import installed_release, load_shipped
from bridgepack.bridge.writing.write import host_config, to_bridge
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, errors_and_warnings, quiet_host, recipe_of
from tests.support.gpu_host import pretend_gpu_host
from tests.support.small_builds import build, conversations_recipe
from tests.support.upstream_recipes import gpu_of, validate, world_size_of

pytestmark = pytest.mark.bridge

#: Why a shipped recipe is not read back -> parts of the names.
NOT_ADOPTED = {
    "dataset is a EnergonDatasetConfig": ("valor32k", "energon"),
    "dataset is a Step37Flickr8kSFTDataProvider": ("step37",),
    "dataset is a WanDatasetConfig": ("wan_",),
    "dataset is a FluxDatasetConfig": ("flux_",),
    "load_kwargs.data_files must contain non-empty paths": ("hf_json",),
}
#: Why a shipped recipe cannot be packed -> parts of the names.
NOT_PACKED = {
    "BP901": ("glm45", "qwen3_next"),
    "BP902": ("qwen3_omni", "nemotron_nano_v2_vl"),
    "BP903": ("gemma2",),
    "BP915": ("qwen35_vl", "gemma3_vl", "exaone45", "glm_45v", "nemotron_omni", "qwen2_audio", "kimi_k25"),
    "BP917": ("deepseek_v4",),
    "which cannot pack": ("step37", "wan_", "flux_"),
}
#: The shipped recipe itself leaves the data for the user to fill in.
LEFT_TO_THE_USER = {"qwen3_vl_8b_peft_1gpu_h100_bf16_energon_config"}
#: What the host says of data that is not there.
NO_FILES = "must be set to a non-empty|must contain non-empty paths"
#: Faults of a shipped recipe's topology that no safe change mends.
FAULTY = {
    "qwen3_vl_235b_a22b_sft_32gpu_h100_bf16_config": {"BP829"},
    "nemotron_3_nano_4b_peft_8gpu_h100_bf16_config": {"BP841"},
    # Sequence parallelism pads sequences, which no kernel takes with heads of 512.
    "gemma4_vl_26b_peft_4gpu_h100_bf16_config": {"BP730"},
    "gemma4_vl_26b_sft_8gpu_h100_bf16_config": {"BP730"},
    # Sequences of 131,072 tokens for a model of 40,960 positions, without scaling.
    "qwen3_600m_sft_8gpu_h100_bf16_128k_config": {"BP640"},
}
#: What packed rows, or the class of the dataset, need otherwise than a shipped recipe has it.
CORRECTED = re.compile(
    r"dataset(\..*)?$|model\.(mtp_num_layers|pipeline_model_parallel_layout|calculate_per_token_loss|seq_length"
    r"|attention_backend|hf_model_id|sequence_parallel|expert_tensor_parallel_size|gradient_accumulation_fusion)$|ddp\.average_in_collective$"
    r"|comm_overlap\.(overlap_moe_expert_parallel_comm|delay_wgrad_compute)$|tokenizer\.(tokenizer_type|tokenizer_model"
    r"|vocab_size)$|checkpoint\.ckpt_format$|scheduler\.lr_decay_iters$|train\.eval_(iters|interval)$|validation\.eval_.*$"
)


def reason_of(error: ConfigError, reasons: dict[str, tuple[str, ...]], name: str) -> str:
    """Return why a recipe was refused, which must be one of the reasons for recipes called that way."""
    return next(
        (reason for reason, parts in reasons.items() if reason in str(error) and any(part in name for part in parts)),
        f"{name}: {error}",
    )


@pytest.mark.full
def test_every_shipped_recipe_is_read_back_or_refused(host: None, upstream_configs: dict[str, Any]) -> None:
    refused: dict[str, str] = {}
    wrong: dict[str, Any] = {}
    for name, config in upstream_configs.items():
        short = name.rpartition(".")[2]
        before = copy_of(config)
        with quiet_host(), pretend_gpu_host(gpu_of(name)):
            try:
                recipe = from_bridge(config, name=short)
            except ConfigError as error:
                refused[short] = reason_of(error, NOT_ADOPTED, short)
                continue
            again = host_config(SFTRecipe.from_mapping(recipe.model_dump(exclude_unset=True))).config
        found = {path: values for path, values in differences(again, config).items() if not CORRECTED.match(path)}
        wrong |= {f"{short} {path}": values for path, values in found.items()}
        assert differences(config, before) == {}

    assert wrong == {}
    assert set(refused.values()) == set(NOT_ADOPTED)
    assert len(refused) == 9


def test_adopted_recipe_runs_as_the_shipped_one(host: None, upstream_configs: dict[str, Any], tmp_path: Path) -> None:
    num_checked = 0
    for name in list(upstream_configs)[::6]:
        config, short = upstream_configs[name], name.rpartition(".")[2]
        if short.startswith(("wan", "flux", "step37", "glm45")) or hasattr(config.dataset, "path"):
            continue
        with quiet_host(), pretend_gpu_host(gpu_of(name)):
            recipe = from_bridge(config, name=short).override({"checkpoint.pretrained": str(tmp_path)})
            world_size = world_size_of(name, config)
            assert validate(to_bridge(recipe), world_size) == validate(config, world_size), short
        num_checked += 1
    assert num_checked > 20


def test_recipe_holds_what_the_config_says(host: None) -> None:
    from megatron.bridge.data.sft_processing import ChatSFTPreprocessingConfig

    name = "moonlight_16b_peft_2gpu_h100_bf16_config"
    config = _shipped(
        name,
        model__attention_backend=None,
        model__cp_comm_type="a2a",
        model__init_method_std=0.5,
        checkpoint__pretrained_checkpoint="weights",
        logger__wandb_project="mine",
        scheduler__lr_warmup_iters=3,
    )
    config.env_vars["NCCL_DEBUG"] = "WARN"
    config.dataset.preprocessing = ChatSFTPreprocessingConfig(loss_mode="last_turn")

    recipe = SFTRecipe.from_bridge(config, name=name, data={"train": "mine.jsonl"})

    assert recipe.data.train == "mine.jsonl"
    assert (recipe.preprocessing.loss_mode, recipe.fields_on_auto) == ("last_turn", ())
    assert (recipe.method.kind, recipe.method.dim) == ("lora", config.peft.dim)
    assert recipe.parallelism.tensor_model_parallel_size == config.model.tensor_model_parallel_size
    assert recipe.parallelism.cp_comm_type == "a2a"
    assert (recipe.checkpoint.pretrained, recipe.logging.wandb_project) == ("weights", "mine")
    assert recipe.environment == {"NCCL_DEBUG": "WARN"}
    assert recipe.bridge_overrides["model"]["init_method_std"] == 0.5
    assert to_bridge(recipe).scheduler.lr_warmup_iters == 3


def test_recipe_says_the_release_where_its_rows_depend_on_it(host: None) -> None:
    """The host gives turns to the template in its own way, which 0.7 does otherwise than 0.6, the target."""
    from megatron.bridge.data.sft_processing import ChatSFTPreprocessingConfig

    with quiet_host():
        config = load_shipped("qwen3_8b_sft_4gpu_h100_bf16_config")
        config.dataset.preprocessing = ChatSFTPreprocessingConfig()
        recipe = from_bridge(config)
    name = installed_release().name

    assert recipe.bridge_version == {"0.6": None, "0.7": "0.7"}[name]
    assert recipe.host_habits == {"0.6": {}, "0.7": {"null_content": "empty", "tool_arguments": "object"}}[name]


def test_recipe_without_a_shipped_name_is_based_on_the_model(host: None) -> None:
    with quiet_host():
        recipe = from_bridge(load_shipped("qwen3_8b_sft_4gpu_h100_bf16_config"))
        again = to_bridge(recipe)

    assert (recipe.name, recipe.model and recipe.model.name) == ("Qwen3-8B", "Qwen/Qwen3-8B")
    assert again.rng.seed == load_shipped("qwen3_8b_sft_4gpu_h100_bf16_config").rng.seed


def test_recipe_that_was_adopted_stays_the_same(host: None) -> None:
    recipe = recipe_of(
        DENSE,
        parallelism={"tensor_model_parallel_size": 2, "context_parallel_size": 2, "sequence_parallel": True},
        schedule={"train_iters": 70, "warmup_fraction": 0.3, "lr_decay_style": "linear"},
        method={"kind": "dora", "dim": 8},
        optimizer__lr=1e-5,
        precision__recipe="fp16_mixed",
        bridge_overrides={"train": {"manual_gc": True}, "comm_overlap": {"tp_comm_overlap": False}},
    )
    config = to_bridge(recipe)

    again = to_bridge(from_bridge(config, name=DENSE, data={"train": "train.jsonl"}))

    left = {path for path in differences(again, config) if "artifacts" not in str(differences(again, config)[path])}
    assert left == set()


def test_packs_of_two_folders_are_no_artifact(host: None) -> None:
    config = to_bridge(recipe_of(DENSE, artifact="artifacts/a", data__validation="b.jsonl"))
    specs = config.dataset.offline_packing_specs

    def artifact() -> str | None:
        return from_bridge(config, name=DENSE, data={"train": "a.jsonl", "validation": "b.jsonl"}).artifact

    assert (specs.packed_val_data_path, artifact()) == ("artifacts/a/validation", "artifacts/a")
    specs.packed_val_data_path = "artifacts/b/validation"
    assert artifact() is None


def _shipped(name: str = DENSE, **values: Any) -> Any:
    """Return the config of a shipped recipe with other values, whose names are dotted paths with `__` for the dot."""
    config = load_shipped(name)
    for path, value in values.items():
        section, _, field = path.replace("__", ".").rpartition(".")
        setattr(value_at(config, section) if section else config, field, value)
    return config


def _other_adapter() -> Any:
    from megatron.bridge.peft.canonical_lora import CanonicalLoRA

    return CanonicalLoRA()


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: from_bridge(_shipped(peft=_other_adapter()), name=DENSE), "peft is a CanonicalLoRA"),
        (lambda: from_bridge(_shipped(model__init_method=len), name=DENSE), "model.init_method is"),
        (lambda: from_bridge(_shipped(data_parallel_size=1), name=DENSE), "has been through runtime_config_update"),
        (lambda: from_bridge({"model": {}}), "allowed: a ConfigContainer"),
        (lambda: from_bridge(load_shipped("nemotronh_4b_sft_1gpu_h100_bf16_config")), "names no model id"),
        (lambda: pack_for({"model": {}}), "allowed: a ConfigContainer"),
        (
            lambda: pack_for(load_shipped("gemma2_2b_sft_1gpu_h100_bf16_config")),
            r"the attention of Gemma 2 raises for packs \(BP903\)",
        ),
        (
            lambda: pack_for(load_shipped("qwen25_vl_3b_sft_1gpu_h100_bf16_config"), "packs"),
            "leave artifact out",
        ),
    ],
)
def test_what_cannot_be_read_or_packed_is_refused(host: None, refused: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refused()


@pytest.mark.full
def test_shipped_recipes_are_packed_or_refused(host: None, upstream_configs: dict[str, Any], tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    num_packed = 0
    for name, config in upstream_configs.items():
        short = name.rpartition(".")[2]
        config = copy_of(config)
        config.checkpoint.pretrained_checkpoint = str(tmp_path)
        before = copy_of(config)
        with quiet_host(), pretend_gpu_host(gpu_of(name)):
            world_size = world_size_of(name, config)
            try:
                packed = pack_for(config, world_size=world_size)
            except ConfigError as error:
                refused[short] = reason_of(error, NOT_PACKED, short)
                continue
            verdict = validate(packed.config, world_size)
        assert differences(config, before) == {}
        assert errors_and_warnings(packed.config, world_size) == FAULTY.get(short, set()), short
        assert {finding.code for finding in packed.findings} == FAULTY.get(short, set())
        assert verdict is None or short in LEFT_TO_THE_USER or re.search(NO_FILES, verdict), (short, verdict)
        assert _is_packed(packed.config)
        assert all(change.why for change in packed.changes)
        listed = {change.path for change in packed.changes}
        for path in differences(before, packed.config):
            assert any(_is_above(one, path) or _is_above(path, one) for one in listed), path
        num_packed += 1

    assert set(refused.values()) == set(NOT_PACKED)
    assert num_packed == len(upstream_configs) - len(refused)
    assert num_packed > 125


def _is_packed(config: Any) -> bool:
    dataset = config.dataset
    if getattr(dataset, "enable_offline_packing", False):
        return dataset.offline_packing_specs.packed_sequence_size == config.model.seq_length
    return bool(dataset.enable_in_batch_packing) and config.train.micro_batch_size > 1


def _is_above(path: str, other: str) -> bool:
    return f"{other}.".startswith(f"{path}.")


def test_wrong_config_is_corrected(host: None) -> None:
    config = _shipped(
        model__context_parallel_size=4,
        model__attention_backend="flash",
        train__micro_batch_size=2,
        validation__eval_micro_batch_size=2,
        dataset__do_test=True,
        dataset__dataset_kwargs=None,
        checkpoint__pretrained_checkpoint="weights",
    )

    packed = pack_for(config, world_size=8)

    expected = {
        "dataset.offline_packing_specs.pad_seq_to_mult": (1, 8),
        "train.micro_batch_size": (2, 1),
        "validation.eval_micro_batch_size": (2, 1),
        "model.calculate_per_token_loss": (False, True),
        "dataset.do_test": (True, False),
    }
    changes = {change.path: (as_written(change.old), change.new) for change in packed.changes}
    assert expected.items() <= changes.items()
    assert packed.config.dataset.dataset_kwargs == {"pad_to_max_length": True}
    assert errors_and_warnings(packed.config, 8) == set()
    assert config.train.micro_batch_size == 2


def test_unpacked_text_is_packed(host: None) -> None:
    config = _shipped(dataset__enable_offline_packing=False, dataset__offline_packing_specs=None)

    packed = pack_for(config).config

    assert packed.dataset.enable_offline_packing is True
    assert packed.dataset.offline_packing_specs.packed_sequence_size == config.dataset.seq_length
    assert packed.dataset.dataset_kwargs["pad_to_max_length"] is True


def test_packs_of_an_artifact_are_wired(host: None, conversations: Path, tmp_path: Path) -> None:
    packing = {"packed_sequence_size": 512, "pad_seq_to_mult": 4}
    folder = build(conversations_recipe(conversations, packing=packing), tmp_path / "packs").output
    config = _shipped(
        model__context_parallel_size=2,
        train__global_batch_size=4,
        validation__eval_global_batch_size=4,
        validation__eval_iters=1,
        checkpoint__pretrained_checkpoint=str(tmp_path),
    )

    packed = pack_for(config, folder, world_size=2)
    specs = packed.config.dataset.offline_packing_specs

    assert (packed.config.model.seq_length, specs.packed_sequence_size, specs.pad_seq_to_mult) == (512, 512, 4)
    assert Path(specs.packed_train_data_path) == folder / "training"
    assert specs.packed_metadata_path == folder / "bridge_metadata.json"
    assert (packed.config.dataset.hf_dataset, packed.config.dataset.dataset_root) == (None, str(folder))
    with pretend_gpu_host():
        assert validate(packed.config, 2) is None
    report = check_target(packed.config, CheckOptions(artifact=folder, world_size=2))
    assert not [finding for finding in report.findings if finding.changes]
