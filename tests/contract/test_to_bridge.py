"""Recipes become configs that the real megatron-bridge accepts, and nothing in them is ignored in silence."""

import enum
from collections.abc import Iterator
from pathlib import Path, PosixPath
from types import ModuleType
from typing import Any

import pytest

from bridgepack.bridge.forward_steps import forward_step_for
from bridgepack.bridge.shipped import load_shipped, shipped_recipes
from bridgepack.bridge.writing.write import host_config, to_bridge
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, errors_and_warnings, quiet_host, recipe_of
from tests.support.gpu_host import pretend_gpu_host
from tests.support.small_artifact import build_counting_artifact, write_counting_chats, write_counting_tokenizer
from tests.support.upstream_recipes import RecipeFunction, gpu_of, recipes_offline, validate, world_size_of

pytestmark = pytest.mark.bridge

#: Makes images or video.
NO_LANGUAGE_MODEL = {
    "flux_12b_sft_2gpu_h100_bf16_config",
    "wan_1_3b_sft_8gpu_h100_bf16_config",
    "wan_14b_sft_8gpu_h100_bf16_config",
}
#: Their layers do not spread over their pipeline stages: the host refuses to build the model.
UNEVEN = {
    "glm45_355b_sft_128gpu_h100_bf16_config",
    "glm45_air_106b_sft_32gpu_h100_bf16_config",
    "step37_sft_64gpu_h100_bf16_flickr8k_config",
}
REFUSED = ("makes images or video", "sizes that split the layers evenly")
#: Findings that no setting mends -> family; a check reports them.
NOT_FOR_PACKS = {
    "BP901": "deepseek_v4|glm45|qwen3_next",
    "BP903": "gemma2",
    "BP917": "deepseek_v4",
    "BP829": "glm45_355b|qwen3_vl_235b",
}
#: What the host refuses in the recipe as it is shipped, whatever its data.
NOT_VALID = {"Invalid choices for recompute_modules": "deepseek_v4"}


@pytest.fixture(scope="module")
def host(bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the configs of all models without a network."""
    with recipes_offline(tmp_path_factory.mktemp("hub")):
        yield


def test_every_shipped_recipe_is_found_by_name(host: None, upstream_recipes: dict[str, RecipeFunction]) -> None:
    found = shipped_recipes()

    assert found["qwen3_8b_sft_config"] is found["qwen3_8b_sft_4gpu_h100_bf16_config"]
    assert {function.__name__ for function in found.values()} == {name.rpartition(".")[2] for name in upstream_recipes}


@pytest.mark.full
def test_every_shipped_recipe_is_a_base(host: None, upstream_configs: dict[str, Any], tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    invalid: dict[str, str] = {}
    findings: dict[str, set[str]] = {}
    for name, shipped in upstream_configs.items():
        short = name.rpartition(".")[2]
        recipe = _with_topology_of(shipped, short, checkpoint__pretrained=str(tmp_path))
        with quiet_host(), pretend_gpu_host(gpu_of(name)):
            try:
                config = to_bridge(recipe)
            except ConfigError as error:
                refused[short] = next((reason for reason in REFUSED if reason in str(error)), str(error))
                continue
            world_size = world_size_of(name, config)
            verdict = validate(config, world_size)
        if verdict is not None:
            invalid[short] = verdict
        findings[short] = errors_and_warnings(config, world_size)

    no_text, uneven = REFUSED
    assert refused == dict.fromkeys(NO_LANGUAGE_MODEL, no_text) | dict.fromkeys(UNEVEN, uneven)
    for short, verdict in invalid.items():
        assert any(reason in verdict and part in short for reason, part in NOT_VALID.items()), (short, verdict)
    for short, codes in findings.items():
        assert all(code in NOT_FOR_PACKS for code in codes), (short, codes)
        assert all(any(part in short for part in NOT_FOR_PACKS[code].split("|")) for code in codes), (short, codes)
    assert len(findings) == 184


def _with_topology_of(shipped: Any, name: str, **changes: Any) -> SFTRecipe:
    model = shipped.model
    return recipe_of(
        name,
        batch__global_batch_size=128,
        packing__packed_sequence_size=4096,
        method__kind="lora" if shipped.peft is not None else "full",
        parallelism={
            "tensor_model_parallel_size": model.tensor_model_parallel_size,
            "pipeline_model_parallel_size": model.pipeline_model_parallel_size,
            "virtual_pipeline_model_parallel_size": model.virtual_pipeline_model_parallel_size,
            "context_parallel_size": model.context_parallel_size,
            "expert_model_parallel_size": model.expert_model_parallel_size or 1,
            "expert_tensor_parallel_size": model.expert_tensor_parallel_size,
            "sequence_parallel": bool(model.sequence_parallel) and model.tensor_model_parallel_size > 1,
        },
        **changes,
    )


@pytest.mark.parametrize("name", ["llama32_1b_sft_1gpu_h100_bf16", f"bridge:{DENSE}", DENSE])
def test_name_of_a_base_is_taken_in_every_form(host: None, name: str) -> None:
    assert to_bridge(recipe_of(name)).model.hf_model_id == "meta-llama/Llama-3.2-1B"


def test_unknown_name_is_refused_with_the_nearest(host: None) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean {DENSE}"):
        to_bridge(recipe_of("llama32_1b_sft_1gpu_h100_bf61"))


def test_recipe_that_refuses_says_why(host: None) -> None:
    with pytest.raises(ConfigError, match="PEFT is not currently supported for Qwen3-Next"):
        load_shipped("qwen3_next_80b_a3b_peft_1gpu_h100_bf16_config")


def test_recipe_without_a_model_is_refused(host: None) -> None:
    with pytest.raises(ConfigError, match="model is missing"):
        to_bridge(recipe_of(DENSE).override({"model": None}))


def test_offline_packs_are_wired(host: None) -> None:
    recipe = recipe_of(DENSE, parallelism__context_parallel_size=2, artifact="packs", data__validation="val.jsonl")
    config = recipe.to_bridge()
    specs = config.dataset.offline_packing_specs

    assert type(config.dataset).__name__ == "GPTSFTDatasetConfig"
    assert (specs.packed_sequence_size, config.dataset.seq_length, config.model.seq_length) == (2048, 2048, 2048)
    assert (specs.pad_seq_to_mult, config.train.micro_batch_size) == (4, 1)
    assert (specs.packed_train_data_path, specs.packed_val_data_path) == ("packs/training", "packs/validation")
    assert specs.packed_metadata_path == PosixPath("packs/bridge_metadata.json")
    assert config.dataset.dataset_kwargs == {"pad_to_max_length": True}
    assert (config.model.calculate_per_token_loss, config.ddp.average_in_collective) == (True, False)
    assert config.dataset.do_test is False
    assert config.mixed_precision == "bf16_mixed"


def test_a_path_that_the_user_sets_to_null_is_null(host: None) -> None:
    overrides = {"dataset": {"offline_packing_specs": {"packed_metadata_path": None}}}
    specs = to_bridge(recipe_of(DENSE, bridge_overrides=overrides)).dataset.offline_packing_specs

    assert specs.packed_metadata_path is None


def test_packs_of_an_artifact_decide_the_length_of_the_run(host: None, tmp_path: Path) -> None:
    chats = write_counting_chats(tmp_path / "chats.jsonl", num_chats=50)
    tokenizer = write_counting_tokenizer(tmp_path / "tokenizer", chats)
    folder = build_counting_artifact(tmp_path / "build", tokenizer, packed_sequence_size=128, pad_seq_to_mult=1)
    changes = {"packing__packed_sequence_size": 128, "tokenizer__name_or_path": str(tokenizer)}
    recipe = recipe_of(
        DENSE,
        schedule={"num_epochs": 2},
        data__validation="validation.jsonl",
        parallelism__num_gpus=2,
        checkpoint__pretrained=str(tmp_path),
        **changes,
    )
    built = check_target(folder, CheckOptions())
    assert not built.has_errors

    config = to_bridge(recipe, artifact=folder)

    num_packs = sum(_rows(path) for path in (folder / "training").glob("*.parquet"))
    assert config.train.train_iters == -(-2 * num_packs // 8)
    assert config.train.num_epochs is None
    assert config.scheduler.lr_warmup_iters < config.train.train_iters
    assert not check_target(config, CheckOptions(artifact=folder, world_size=2)).has_errors
    with pretend_gpu_host():
        assert validate(config, 2) is None


def _rows(path: Path) -> int:
    import pyarrow.parquet as parquet

    return int(parquet.read_metadata(path).num_rows)


def test_hub_model_is_a_base(host: None, tmp_path: Path) -> None:
    recipe = recipe_of("Qwen/Qwen3-8B", tokenizer__name_or_path="Qwen/Qwen3-8B", checkpoint__pretrained=str(tmp_path))
    with quiet_host():
        full, lora = to_bridge(recipe), to_bridge(recipe.override({"method.kind": "lora"}))

    assert (full.model.num_layers, full.model.hf_model_id, full.peft) == (36, "Qwen/Qwen3-8B", None)
    assert (full.optimizer.lr, lora.optimizer.lr) == (5e-6, 1e-4)
    assert lora.peft.target_modules == ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    with pretend_gpu_host():
        assert (validate(full, 1), validate(lora, 1)) == (None, None)


def test_method_decides_the_adapters(host: None) -> None:
    shipped = "moonlight_16b_peft_2gpu_h100_bf16_config"
    lora = to_bridge(recipe_of(shipped, method={"kind": "lora", "dim": 4}))
    dora = to_bridge(recipe_of(shipped, method={"kind": "dora", "target_modules": ["linear_proj"]}))
    full = to_bridge(recipe_of(shipped))
    adapters = to_bridge(recipe_of(DENSE, method={"kind": "lora"}))

    assert (lora.peft.dim, lora.peft.target_modules) == (4, load_shipped(shipped).peft.target_modules)
    assert (type(dora.peft).__name__, dora.peft.target_modules) == ("DoRA", ["linear_proj"])
    assert (full.peft, full.optimizer.lr) == (None, 5e-6)
    assert (type(adapters.peft).__name__, adapters.optimizer.lr) == ("LoRA", 1e-4)


def test_attention_kernel_is_the_enum_of_the_host(host: None) -> None:
    config = to_bridge(recipe_of(DENSE, model__attention_backend="fused"))

    assert isinstance(config.model.attention_backend, enum.Enum)
    assert config.model.attention_backend.name == "fused"


def test_details_of_precision_stay_where_the_recipe_says_nothing(host: None) -> None:
    detailed = "olmoe_7b_sft_8gpu_h100_bf16_config"
    assert load_shipped(detailed).mixed_precision.grad_reduce_in_fp32 is False

    assert to_bridge(recipe_of(detailed)).mixed_precision.grad_reduce_in_fp32 is False
    assert to_bridge(recipe_of(detailed, precision__recipe="bf16_mixed")).mixed_precision == "bf16_mixed"
    changed = recipe_of(DENSE, bridge_overrides={"mixed_precision": {"grad_reduce_in_fp32": False}})
    assert to_bridge(changed).mixed_precision.grad_reduce_in_fp32 is False


def test_tokenizer_is_wired(host: None) -> None:
    base = load_shipped("nemotronh_4b_sft_1gpu_h100_bf16_config").tokenizer
    same = to_bridge(
        recipe_of("nemotronh_4b_sft_1gpu_h100_bf16_config", tokenizer__name_or_path=base.tokenizer_model)
    ).tokenizer
    other = to_bridge(
        recipe_of(
            "qwen25_vl_3b_sft_1gpu_h100_bf16_config",
            tokenizer={
                "name_or_path": "org/name",
                "revision": "abc",
                "trust_remote_code": True,
                "chat_template": "a.jinja",
            },
        )
    ).tokenizer
    other.__post_init__()

    assert same.hf_tokenizer_kwargs == base.hf_tokenizer_kwargs
    assert (other.tokenizer_type, other.tokenizer_model, other.vocab_size) == ("HuggingFaceTokenizer", "org/name", None)
    assert (other.trust_remote_code, other.hf_tokenizer_kwargs["revision"]) == (True, "abc")
    assert other.chat_template_path == "a.jinja"


def test_environment_and_graphs_are_written(host: None) -> None:
    recipe = recipe_of(
        DENSE,
        environment={"NCCL_DEBUG": "WARN"},
        cuda_graphs={"implementation": "full_iteration"},
        packing__pad_cu_seqlens=True,
    )
    config = to_bridge(recipe)

    assert config.env_vars["NCCL_DEBUG"] == "WARN"
    assert config.env_vars.keys() > {"NCCL_DEBUG"}
    assert (config.model.cuda_graph_impl, config.dataset.offline_packing_specs.pad_cu_seqlens) == (
        "full_iteration",
        True,
    )
    assert (config.rerun_state_machine.check_for_nan_in_loss, config.rng.te_rng_tracker) == (False, True)


def test_what_the_base_cannot_bring_is_listed_with_its_reason(host: None) -> None:
    shipped = "moonlight_16b_sft_8gpu_h100_bf16_tp1_config"
    assert load_shipped(shipped).comm_overlap.overlap_moe_expert_parallel_comm is True

    found = host_config(recipe_of(shipped))
    reasons = {setting.path: setting.because for setting in found.settings if setting.origin == "derived"}

    assert found.config.comm_overlap.overlap_moe_expert_parallel_comm is False
    assert reasons["comm_overlap.overlap_moe_expert_parallel_comm"].startswith("BP802")
    assert len({setting.path for setting in found.settings}) == len(found.settings)


def test_pipeline_layout_goes_with_the_pipeline(host: None) -> None:
    shipped = "glm52_sft_416gpu_h100_bf16_config"
    base = load_shipped(shipped).model
    stages = {"pipeline_model_parallel_size": 13, "virtual_pipeline_model_parallel_size": 2}
    kept = host_config(recipe_of(shipped, parallelism=stages))
    dropped = to_bridge(recipe_of(shipped)).model
    reasons = {setting.path: setting.because for setting in kept.settings}

    assert base.pipeline_model_parallel_layout.endswith("|ttttmL")
    assert kept.config.model.pipeline_model_parallel_layout == base.pipeline_model_parallel_layout.replace("m", "")
    assert kept.config.model.pipeline_model_parallel_layout.count("t") == base.num_layers
    assert (base.mtp_num_layers, kept.config.model.mtp_num_layers) == (1, None)
    assert "boundaries of packed sequences" in reasons["model.mtp_num_layers"]
    assert (dropped.pipeline_model_parallel_layout, dropped.mtp_num_layers) == (None, None)


def test_user_wins_over_what_is_inherited(host: None) -> None:
    overrides = {"model": {"mtp_num_layers": 1}}
    found = to_bridge(recipe_of("nemotron_3_super_sft_16gpu_h100_bf16_32k_config", bridge_overrides=overrides))

    assert found.model.mtp_num_layers == 1
    assert "BP804" in errors_and_warnings(found, 16)


@pytest.mark.parametrize(
    ("model", "parallelism", "message"),
    [
        (DENSE, {"expert_model_parallel_size": 2}, r"expert_model_parallel_size is 2 without experts; allowed: 1 "),
        (DENSE, {"pipeline_model_parallel_size": 3}, r"pipeline_model_parallel_size is 16 layers over 3 stages; allo"),
        (
            "gpt_oss_20b_sft_8gpu_h100_bf16_config",
            {"tensor_model_parallel_size": 2, "expert_tensor_parallel_size": 2},
            r"expert_tensor_parallel_size is 2 with add_bias_linear true; allowed: 1 \(BP827\)",
        ),
    ],
)
def test_topology_that_the_model_cannot_take(host: None, model: str, parallelism: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^parallelism\.{message}"):
        to_bridge(recipe_of(model, parallelism=parallelism))


def test_rows_are_packed_in_the_batch(host: None, tmp_path: Path) -> None:
    recipe = recipe_of(
        "qwen25_vl_3b_sft_1gpu_h100_bf16_config",
        packing__mode="in_batch",
        data={"train": {"dataset": "cord_v2"}, "validation": {"dataset": "cord_v2", "split": "validation"}},
        tokenizer__name_or_path="Qwen/Qwen2.5-VL-3B-Instruct",
        batch={"micro_batch_size": 2, "global_batch_size": 8, "eval_micro_batch_size": 2},
        checkpoint__pretrained=str(tmp_path),
    )
    config = to_bridge(recipe)

    assert type(config.dataset).__name__ == "DirectHFSFTDatasetConfig"
    assert (config.dataset.enable_in_batch_packing, config.dataset.source.dataset_name) == (True, "cord_v2")
    assert config.dataset.validation_source.split == "validation"
    assert config.dataset.hf_processor_path == "Qwen/Qwen2.5-VL-3B-Instruct"
    with pretend_gpu_host():
        assert validate(config, 2) is None
    assert errors_and_warnings(config, 2) == set()


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"dataset": "org/chats", "name": "math", "revision": "abc"}, ("org/chats", "math", {"revision": "abc"})),
        ("train.jsonl", ("json", None, {"data_files": "train.jsonl"})),
        ({"path": "train.jsonl", "name": "chats"}, ("json", None, {"data_files": "train.jsonl"})),
        ("train.parquet", ("parquet", None, {"data_files": "train.parquet"})),
    ],
)
def test_sources_that_the_host_reads(host: None, train: Any, expected: tuple[Any, ...]) -> None:
    source = to_bridge(recipe_of(DENSE, packing__mode="none", data__train=train)).dataset.source

    assert (source.path_or_dataset, source.subset, source.load_kwargs) == expected
    source.validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__train": "folder"}, "allowed: a file"),
        ({"data__train": ["a.jsonl", "b.jsonl"]}, "list of 2 sources"),
        ({"data__train": {"path": "a.jsonl", "columns": {"prompt": "q"}, "split": "x"}}, "sets columns, split; with"),
        ({"data__train": {"epochs": 2, "sources": ["a.jsonl"]}}, "sets weight, epochs or max_rows; with"),
        ({"data__validation_fraction": 0.1}, "validation_fraction is 0.1"),
        ({"preprocessing": {"kind": "tokenized"}}, "preprocessing.kind is tokenized"),
    ],
)
def test_data_that_the_host_cannot_read(host: None, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_bridge(recipe_of(DENSE, packing__mode="none", **changes))


def test_forward_step_is_that_of_the_model(host: None) -> None:
    vision = recipe_of(
        "qwen25_vl_3b_sft_1gpu_h100_bf16_config", packing__mode="none", data__train={"dataset": "cord_v2"}
    )

    assert forward_step_for(recipe_of(DENSE)).__module__ == "megatron.bridge.training.gpt_step"
    assert forward_step_for(to_bridge(vision)).__module__ == "megatron.bridge.training.vlm_step"
