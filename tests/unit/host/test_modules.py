"""What a model's layers are made of follows from its settings, and other models' names lead to its own."""

from typing import Any

import pytest

from bridgepack.host import V06, V07
from bridgepack.host.module_names import equivalent_targets, is_foreign, is_target
from bridgepack.host.modules import Architecture, architecture_of, is_match, pattern_of

GPT, HYBRID = "bridge.GPTModelProvider", "bridge.HybridModelProvider"
LATENT = {"_target_": "bridge.MLAModelProvider", "num_layers": 2, "multi_latent_attention": True}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"_target_": GPT, "num_layers": 2},
    "experts": {"_target_": GPT, "num_layers": 4, "num_moe_experts": 8, "moe_layer_freq": 2},
    "latent": LATENT,
    "latent queries": {**LATENT, "q_lora_rank": 8},
    "latent, fused": {**LATENT, "q_lora_rank": 8, "mla_down_proj_fusion": True},
    "delta": {
        **{"_target_": GPT, "num_layers": 4, "experimental_attention_variant": "gated_delta_net"},
        **{"linear_attention_freq": 4},
    },
    "hybrid": {"_target_": HYBRID, "hybrid_layer_pattern": "ME|M*-/M*", "num_moe_experts": 8},
    "vision": {"_target_": "bridge.Qwen3VLModelProvider", "num_layers": 2},
}
ATTENTION, MAMBA, DELTA = "attention", "mamba", "gated_delta_net"


def known(kind: str) -> Architecture:
    found = architecture_of(MODELS[kind])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("dense", [(ATTENTION, "dense")] * 2),
        ("experts", [(ATTENTION, "experts"), (ATTENTION, "dense")] * 2),
        ("latent", [("mla", "dense")] * 2),
        ("latent queries", [("mla_q", "dense")] * 2),
        ("latent, fused", [("mla_fused", "dense")] * 2),
        ("delta", [(DELTA, "dense")] * 3 + [(ATTENTION, "dense")]),
        ("hybrid", [(MAMBA, ""), ("", "experts"), (MAMBA, ""), (ATTENTION, ""), ("", "dense")]),
    ],
)
def test_layers_follow_from_settings(kind: str, layers: list[tuple[str, str]]) -> None:
    assert known(kind).layers == tuple(layers)


def test_prediction_has_the_linear_layers_of_the_last_layer() -> None:
    found = architecture_of({**MODELS["experts"], "moe_layer_freq": [0, 0, 0, 1], "mtp_num_layers": 1})

    assert found is not None
    layer = "decoder.layers.3."
    of_last = [one.path.removeprefix(layer) for one in found.linears if one.path.startswith(layer)]
    paths = [one.path for one in found.linears if one.part == "prediction"]
    assert paths == ["mtp.layers.0.eh_proj", *(f"mtp.layers.0.mtp_model_layer.{path}" for path in of_last)]
    assert "mlp.experts.linear_fc1" in of_last


@pytest.mark.parametrize(
    "settings",
    [
        {"_target_": "bridge.FluxProvider", "num_layers": 2},
        {"_target_": GPT},
        {"_target_": HYBRID, "hybrid_layer_pattern": "MX"},
        {**LATENT, "experimental_attention_variant": "dsv4_hybrid"},
        {},
    ],
)
def test_models_that_are_not_covered_are_not_guessed(settings: dict[str, Any]) -> None:
    assert architecture_of(settings) is None


def test_paths_begin_where_the_language_model_is() -> None:
    assert known("vision").linears[0].path == "language_model.decoder.layers.0.self_attention.linear_qkv"
    assert known("dense").linears[-1].path == "output_layer"


@pytest.mark.parametrize(
    ("kind", "adapter", "targets"),
    [
        ("dense", "LoRA", "linear_qkv linear_proj linear_fc1 linear_fc2"),
        ("dense", "CanonicalLoRA", "linear_q linear_k linear_v linear_proj linear_fc1_up linear_fc1_gate linear_fc2"),
        ("experts", "DoRA", "linear_qkv linear_proj"),
        ("latent", "LoRA", "linear_q_proj linear_kv_down_proj linear_kv_up_proj linear_proj linear_fc1 linear_fc2"),
        ("delta", "LoRA", "linear_qkv linear_proj linear_fc1 linear_fc2 in_proj out_proj"),
        ("hybrid", "LoRA", "linear_qkv linear_proj linear_fc1 linear_fc2 in_proj out_proj"),
    ],
)
def test_targets_follow_the_architecture(kind: str, adapter: str, targets: str) -> None:
    assert " ".join(known(kind).targets(adapter)) == targets


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [("latent", {"linear_kv_down_proj", "linear_proj", "linear_fc2"}), ("dense", {"linear_proj", "linear_fc2"})],
)
def test_dora_leaves_layers_that_ranks_split_to_runs_without_tensor_parallelism(kind: str, left_out: set[str]) -> None:
    alone, split = (known(kind).targets("DoRA", is_split=is_split) for is_split in (False, True))
    assert set(alone) - set(split) == left_out


@pytest.mark.parametrize(
    ("kind", "target", "names"),
    [
        ("dense", "q_proj", "linear_qkv"),
        ("dense", "c_attn", "linear_qkv"),
        ("dense", "out_proj", "linear_proj"),
        ("dense", "gate_up_proj", "linear_fc1"),
        ("dense", "down_proj", "linear_fc2"),
        ("dense", "linear_q_down_proj", "linear_qkv"),
        ("dense", "*.self_attn.v_proj", "*.self_attention.linear_qkv"),
        ("dense", "model.layers.0.self_attn.o_proj", "decoder.layers.0.self_attention.linear_proj"),
        ("dense", "lm_head", "output_layer"),
        ("dense", "c_proj", "linear_proj linear_fc2"),
        ("dense", "mlp", "linear_fc1 linear_fc2"),
        ("dense", "self_attn", "linear_qkv linear_proj"),
        ("hybrid", "mixer", "in_proj out_proj"),
        ("hybrid", "dt_proj", "in_proj"),
        ("dense", "embed_tokens", ""),
        ("dense", "in_proj_qkvz", ""),
        ("dense", "all-linear", "linear_qkv linear_proj linear_fc1 linear_fc2"),
        ("latent", "q_proj", "linear_q_proj"),
        ("latent", "linear_qkv", "linear_q_proj linear_kv_down_proj linear_kv_up_proj"),
        ("latent queries", "q_a_proj", "linear_q_down_proj"),
        ("latent queries", "q_proj", "linear_q_down_proj linear_q_up_proj"),
        ("latent queries", "kv_a_proj_with_mqa", "linear_kv_down_proj"),
        ("latent queries", "kv_b_proj", "linear_kv_up_proj"),
        ("latent, fused", "kv_a_proj_with_mqa", "linear_qkv_down_proj"),
        ("delta", "in_proj_ba", "in_proj"),
        ("hybrid", "k_proj", "linear_qkv"),
        ("experts", "gate", "router"),
    ],
)
def test_names_of_other_models(kind: str, target: str, names: str) -> None:
    assert " ".join(equivalent_targets(target, known(kind), "LoRA")) == names


def test_names_that_no_model_of_the_host_has() -> None:
    assert [is_foreign(one) for one in ("q_proj", "*.gate_proj", "linear_q_proj", "in_proj", "mine")] == [
        *(True, True, False, False, False)
    ]


def test_canonical_adapters_need_all_parts_of_a_layer() -> None:
    assert equivalent_targets("q_proj", known("dense"), "CanonicalLoRA") == ("linear_q", "linear_k", "linear_v")
    assert pattern_of("*.layers.0.*.linear_fc1_up", "CanonicalLoRA") == "*.layers.0.*.linear_fc1"


def test_stars_stand_for_any_text() -> None:
    linears = known("dense").linears
    assert [one.layer for one in linears if is_match("*.layers.1.*.linear_qkv", one)] == [1]
    assert [one.layer for one in linears if is_match("decoder.layers.0.self_attention.linear_qkv", one)] == [0]
    assert not is_target("layers.0.self_attention.linear_qkv", known("dense"), "LoRA")
    assert not is_target("[linear", known("dense"), "LoRA")


def test_models_of_0_7_that_are_built_from_parts_have_the_layers_of_0_6() -> None:
    name = "llama32_1b_sft_1gpu_h100_bf16_config"
    both = [release.facts.shipped_recipe(name) for release in (V06, V07)]
    before, after = (architecture_of(config["model"]) for config in both if config is not None)

    assert before is not None
    assert after == before


def test_a_release_says_where_a_language_model_has_moved() -> None:
    model = {"_target_": "a.NemotronOmniModelProvider", "hybrid_layer_pattern": "M*"}
    found = [architecture_of(model, release) for release in (None, V06, V07)]

    assert [one.prefix for one in found if one is not None] == [
        "llava_model.language_model.",
        "llava_model.language_model.",
        "language_model.",
    ]
