"""Recipes become configs that the real megatron-bridge accepts, and nothing in them is ignored in silence."""

from pathlib import Path, PosixPath
from typing import Any

import pyarrow.parquet as pq
import pytest

from bridgepack.bridge.forward_steps import forward_step_for
from bridgepack.bridge.live import value_in
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import installed_release, load_shipped, shipped_recipes
from bridgepack.bridge.writing.write import host_config, to_bridge
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import V06
from tests.support.bridge_recipes import DENSE, errors_and_warnings, quiet_host, recipe_of
from tests.support.gpu_host import pretend_gpu_host
from tests.support.small_builds import AS_HOST, build, conversations_recipe
from tests.support.upstream_recipes import RecipeFunction, gpu_of, validate, world_size_of

pytestmark = pytest.mark.bridge

#: Shipped recipes to build on.
ADAPTERS = "moonlight_16b_peft_2gpu_h100_bf16_config"
OWN_TARGETS = "moonlight_16b_peft_4gpu_h100_bf16_config"
DETAILED = "olmoe_7b_sft_8gpu_h100_bf16_config"
VISION = "qwen25_vl_3b_sft_1gpu_h100_bf16_config"
UNPACKED = {"packing__mode": "none"}
#: Training data that the host does not read, and why.
NO_SOURCES: list[tuple[Any, str]] = [
    ("folder", "allowed: a file"),
    (["a.jsonl", "b.jsonl"], "list of 2 sources"),
    ({"path": "a.jsonl", "split": "x"}, "a source with split; allowed: none with"),
    ({"epochs": 2, "sources": ["a.jsonl"]}, "a source with weight, epochs or max_rows; allowed: none with"),
]
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
#: In 0.7, which lays out the stages of GLM-4.5.
UNEVEN_IN_07 = {
    "qwen35_vl_35b_a3b_sft_8gpu_gb200_bf16_functional_config",
    "step37_sft_64gpu_h100_bf16_flickr8k_config",
}
REFUSED = ("makes images or video", "sizes that split the layers evenly")
#: Findings that no setting mends -> family; a check reports them.
NOT_FOR_PACKS = {
    "BP901": "deepseek_v4|glm45|qwen3_next",
    "BP903": "gemma2",
    "BP917": "deepseek_v4",
    "BP829": "glm45_355b|qwen3_vl_235b",
    # It has chosen adapters on attention alone.
    "BP841": "nemotron_3_nano_4b_peft",
    "BP834": "deepseek_v4",
    # They overlap the communication of shared experts that have adapters.
    "BP848": "nemotron_omni",
    # Classes for images and sound.
    "BP943": "gemma3_vl|glm_45v|nemotron_omni|nemotron_nano_v2_vl|qwen3_omni",
    "BP730": "gemma4_vl",
    "BP949": "gemma4_vl",
    "BP944": "_vl|kimi|minimax|ministral",
    "BP945": "qwen35_vl|qwen3_vl",
    "BP946": "step37",
    "BP947": "qwen25_vl|qwen35_vl|qwen3_vl",
}
#: What the host refuses in the recipe as it is shipped, whatever its data.
NOT_VALID = {"Invalid choices for recompute_modules": "deepseek_v4"}


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
    uneven_here = UNEVEN if installed_release() is V06 else UNEVEN_IN_07
    assert refused == dict.fromkeys(NO_LANGUAGE_MODEL, no_text) | dict.fromkeys(uneven_here, uneven)
    for short, verdict in invalid.items():
        assert any(reason in verdict and part in short for reason, part in NOT_VALID.items()), (short, verdict)
    for short, codes in findings.items():
        assert all(code in NOT_FOR_PACKS for code in codes), (short, codes)
        assert all(any(part in short for part in NOT_FOR_PACKS[code].split("|")) for code in codes), (short, codes)
    assert len(findings) == len(upstream_configs) - len(refused) > 180


def _sizes(**sizes: int) -> dict[str, Any]:
    return {"parallelism": {f"{name}_parallel_size": size for name, size in sizes.items()}}


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
    assert value_in(to_bridge(recipe_of(name)), "model.hf_model_id") == "meta-llama/Llama-3.2-1B"


#: Case -> base, changes to the recipe, and values of the config that it becomes.
WRITTEN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "offline-packs": (
        DENSE,
        {"parallelism__context_parallel_size": 2, "artifact": "packs", "data__validation": "val.jsonl"},
        {
            "dataset.offline_packing_specs.packed_sequence_size": 2048,
            "dataset.offline_packing_specs.pad_seq_to_mult": 4,
            "dataset.offline_packing_specs.packed_train_data_path": "packs/training",
            "dataset.offline_packing_specs.packed_val_data_path": "packs/validation",
            "dataset.offline_packing_specs.packed_metadata_path": PosixPath("packs/bridge_metadata.json"),
            "dataset.dataset_kwargs": {"pad_to_max_length": True},
            "dataset.do_test": False,
            "dataset.seq_length": 2048,
            "model.seq_length": 2048,
            "model.calculate_per_token_loss": True,
            "train.micro_batch_size": 1,
            "ddp.average_in_collective": False,
            "mixed_precision": "bf16_mixed",
        },
    ),
    "path-that-the-user-sets-to-null": (
        DENSE,
        {"bridge_overrides": {"dataset": {"offline_packing_specs": {"packed_metadata_path": None}}}},
        {"dataset.offline_packing_specs.packed_metadata_path": None},
    ),
    "packs-that-overrides-name": (
        DENSE,
        {"bridge_overrides": {"dataset": {"offline_packing_specs": {"packed_train_data_path": "b/training"}}}},
        {
            "dataset.offline_packing_specs.packed_train_data_path": "b/training",
            "dataset.offline_packing_specs.packed_val_data_path": None,
            "dataset.offline_packing_specs.packed_metadata_path": None,
            "dataset.dataset_root": None,
        },
    ),
    "lora-on-a-base-of-adapters": (ADAPTERS, {"method": {"kind": "lora", "dim": 4}}, {"peft.dim": 4}),
    "dora": (
        ADAPTERS,
        {"method": {"kind": "dora", "target_modules": ["linear_proj"]}},
        {"peft.__class__.__name__": "DoRA", "peft.target_modules": ["linear_proj"]},
    ),
    "every-weight-on-a-base-of-adapters": (ADAPTERS, {}, {"peft": None, "optimizer.lr": 5e-6}),
    "lora": (DENSE, {"method": {"kind": "lora"}}, {"peft.__class__.__name__": "LoRA", "optimizer.lr": 1e-4}),
    "enum-of-the-host": (
        DENSE,
        {"model__attention_backend": "fused"},
        {"model.attention_backend.name": "fused", "model.attention_backend.__class__.__name__": "AttnBackend"},
    ),
    "details-of-precision-stay": (DETAILED, {}, {"mixed_precision.grad_reduce_in_fp32": False}),
    "precision": (DETAILED, {"precision__recipe": "bf16_mixed"}, {"mixed_precision": "bf16_mixed"}),
    "detail-of-precision": (
        DENSE,
        {"bridge_overrides": {"mixed_precision": {"grad_reduce_in_fp32": False}}},
        {"mixed_precision.grad_reduce_in_fp32": False},
    ),
    "environment-and-graphs": (
        DENSE,
        {
            "environment": {"NCCL_DEBUG": "WARN"},
            "cuda_graphs": {"implementation": "full_iteration"},
            "packing__pad_cu_seqlens": True,
        },
        {
            "env_vars.NCCL_DEBUG": "WARN",
            "model.cuda_graph_impl": "full_iteration",
            "dataset.offline_packing_specs.pad_cu_seqlens": True,
            "rerun_state_machine.check_for_nan_in_loss": False,
            "rng.te_rng_tracker": True,
        },
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_values_are_written(host: None, case: str) -> None:
    model, changes, expected = WRITTEN[case]
    config = to_bridge(recipe_of(model, **changes))

    assert {path: value_at(config, path) for path in expected} == expected


def test_what_the_base_has_stays(host: None) -> None:
    base = load_shipped(OWN_TARGETS)
    assert load_shipped(DETAILED).mixed_precision.grad_reduce_in_fp32 is False
    assert to_bridge(recipe_of(OWN_TARGETS, method__kind="lora")).peft.target_modules == base.peft.target_modules
    assert to_bridge(recipe_of(DENSE, environment={"NCCL_DEBUG": "WARN"})).env_vars.keys() > {"NCCL_DEBUG"}
    assert type(to_bridge(recipe_of(DENSE)).dataset).__name__ == "GPTSFTDatasetConfig"


def test_targets_that_nobody_has_chosen_follow_the_model(host: None) -> None:
    """The base's are those of a plain transformer, and of its latent attention they reach linear_proj alone."""
    shipped = load_shipped(ADAPTERS).peft.target_modules
    latent = ["linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]

    assert shipped == ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    assert to_bridge(recipe_of(ADAPTERS, method__kind="lora")).peft.target_modules == latent + shipped[2:]
    assert to_bridge(recipe_of(ADAPTERS, method__kind="dora")).peft.target_modules == latent


def test_tokenizer_is_wired(host: None) -> None:
    nemotron = "nemotronh_4b_sft_1gpu_h100_bf16_config"
    base = load_shipped(nemotron).tokenizer
    given = {"name_or_path": "org/name", "revision": "abc", "trust_remote_code": True, "chat_template": "a.jinja"}
    same = to_bridge(recipe_of(nemotron, tokenizer__name_or_path=base.tokenizer_model)).tokenizer
    other = to_bridge(recipe_of(VISION, tokenizer=given)).tokenizer
    other.__post_init__()

    assert same.hf_tokenizer_kwargs == base.hf_tokenizer_kwargs
    assert (other.tokenizer_type, other.tokenizer_model, other.vocab_size) == ("HuggingFaceTokenizer", "org/name", None)
    assert (other.trust_remote_code, other.hf_tokenizer_kwargs["revision"]) == (True, "abc")
    assert other.chat_template_path == "a.jinja"


def test_packs_of_an_artifact_decide_the_length_of_the_run(host: None, conversations: Path, tmp_path: Path) -> None:
    packing = {"packed_sequence_size": 2048, "pad_seq_to_mult": 1}
    folder = build(conversations_recipe(conversations, packing=packing), tmp_path / "packs").output
    recipe = recipe_of(
        DENSE,
        schedule={"num_epochs": 2},
        data__validation="validation.jsonl",
        parallelism__num_gpus=2,
        checkpoint__pretrained=str(tmp_path),
        tokenizer__name_or_path=str(conversations / "tokenizer"),
    )
    assert not check_target(folder, CheckOptions()).has_errors
    (tmp_path / "run_config.yaml").touch()  # makes it a checkpoint

    config = to_bridge(recipe, artifact=folder)

    num_packs = sum(pq.read_metadata(path).num_rows for path in (folder / "training").glob("*.parquet"))
    assert config.train.train_iters == -(-2 * num_packs // 8)
    assert config.train.num_epochs is None
    assert config.scheduler.lr_warmup_iters < config.train.train_iters
    assert not check_target(config, CheckOptions(artifact=folder, world_size=2)).has_errors
    with pretend_gpu_host():
        assert validate(config, 2) is None


def test_hub_model_is_a_base(host: None, tmp_path: Path) -> None:
    recipe = recipe_of("Qwen/Qwen3-8B", tokenizer__name_or_path="Qwen/Qwen3-8B", checkpoint__pretrained=str(tmp_path))
    with quiet_host():
        full, lora = to_bridge(recipe), to_bridge(recipe.override({"method.kind": "lora"}))

    assert (full.model.num_layers, full.model.hf_model_id, full.peft) == (36, "Qwen/Qwen3-8B", None)
    assert (full.optimizer.lr, lora.optimizer.lr) == (5e-6, 1e-4)
    assert lora.peft.target_modules == ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    with pretend_gpu_host():
        assert (validate(full, 1), validate(lora, 1)) == (None, None)


def test_what_the_base_cannot_bring_is_listed_with_its_reason(host: None) -> None:
    shipped = "moonlight_16b_sft_8gpu_h100_bf16_tp1_config"
    assert load_shipped(shipped).comm_overlap.overlap_moe_expert_parallel_comm is True

    found = host_config(recipe_of(shipped))
    reasons = {setting.path: setting.because for setting in found.settings if setting.origin == "derived"}

    loses_boundaries = installed_release() is V06  # 0.7 gives them to the overlapped schedule
    assert found.config.comm_overlap.overlap_moe_expert_parallel_comm is not loses_boundaries
    assert reasons.get("comm_overlap.overlap_moe_expert_parallel_comm", "").startswith("BP802") is loses_boundaries
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


LAYOUT = {"kind": "chat", "messages": [{"from_column": "messages"}]}
#: Fields of preprocessing that the host does not get where it reads the data itself.
NOT_OF_HOST = (
    ("null_content", "auto", "null_content is 'auto'; allowed: 'keep' with packing.mode .* Remove it, or set packing"),
    ("tool_arguments", "object", "tool_arguments is 'object'; allowed: 'keep' with packing.mode"),
    ("content_parts", "join_text", "content_parts is 'join_text'; allowed: 'keep' with packing.mode"),
    ("message_weights", "mask", "message_weights is 'mask'; allowed: .* with packing.mode"),
    ("control_tokens", "drop", "control_tokens is 'drop'; allowed: 'keep' with packing.mode"),
)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (DENSE, {"model": None}, "model is missing"),
        ("llama32_1b_sft_1gpu_h100_bf61", {}, f"Did you mean {DENSE}"),
        ("qwen3_next_80b_a3b_peft_1gpu_h100_bf16_config", {}, "not currently supported for Qwen3-Next"),
        (DENSE, _sizes(expert_model=2), r"^parallelism\.expert_model_parallel_size is 2 without experts; allowed: 1 "),
        (DENSE, _sizes(pipeline_model=3), r"^parallelism\.pipeline_model_parallel_size is 16 layers over 3 stages; "),
        (
            "gpt_oss_20b_sft_8gpu_h100_bf16_config",
            _sizes(tensor_model=2, expert_tensor=2),
            r"^parallelism\.expert_tensor_parallel_size is 2 with add_bias_linear true; allowed: 1 \(BP827\)",
        ),
        *((DENSE, {**UNPACKED, "data__train": train}, message) for train, message in NO_SOURCES),
        (DENSE, {**UNPACKED, "data__validation_fraction": 0.1}, "validation_fraction is 0.1"),
        (
            DENSE,
            {**UNPACKED, "data__layout": None},
            "data.layout is missing; allowed: .* with packing.mode none: .* Set it to {kind: chat, messages",
        ),
        (
            DENSE,
            {**UNPACKED, "data__train": {"path": "a.jsonl", "layout": {**LAYOUT, "tools": "functions"}}},
            "data.layout is .*functions.*; allowed: .* with packing.mode none",
        ),
        (DENSE, {**UNPACKED, "preprocessing": {"kind": "tokenized"}}, "preprocessing.kind is tokenized"),
        *((DENSE, {**UNPACKED, f"preprocessing__{name}": value}, message) for name, value, message in NOT_OF_HOST),
    ],
)
def test_what_the_host_cannot_take_is_refused(host: None, model: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_bridge(recipe_of(model, **changes))


@pytest.mark.parametrize("said", [{}, AS_HOST, {"loss_mode": "last_turn"}])
def test_chats_are_read_as_the_host_does_where_it_reads_them(host: None, said: dict[str, str]) -> None:
    changes = {**UNPACKED, **{f"preprocessing__{name}": value for name, value in said.items()}}
    recipe = recipe_of(DENSE, data__train={"dataset": "org/chats"}, **changes)
    config = to_bridge(recipe)

    assert config.dataset.preprocessing.loss_mode == said.get("loss_mode", "assistant")
    assert recipe.fields_on_auto == ()
    offline = recipe.override({"packing.mode": "offline"})
    assert len(offline.fields_on_auto) == (0 if said == AS_HOST else 3)


def test_rows_are_packed_in_the_batch(host: None, tmp_path: Path) -> None:
    recipe = recipe_of(
        VISION,
        packing__mode="in_batch",
        data={
            "train": {"dataset": "cord_v2"},
            "validation": {"dataset": "cord_v2", "split": "validation"},
            "layout": {"kind": "chat", "messages": [{"from_column": "conversation"}]},
        },
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


def test_forward_step_is_that_of_the_model(host: None) -> None:
    vision = recipe_of(VISION, packing__mode="none", data__train={"dataset": "cord_v2"})

    assert forward_step_for(recipe_of(DENSE)).__module__ == "megatron.bridge.training.gpt_step"
    assert forward_step_for(to_bridge(vision)).__module__ == "megatron.bridge.training.vlm_step"


def test_forward_step_of_packed_text_gives_a_class_for_images_what_it_needs(host: None) -> None:
    text = recipe_of(VISION)

    assert forward_step_for(to_bridge(text)).__module__ == "megatron.bridge.training.vlm_step"
