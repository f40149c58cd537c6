"""What a recipe undoes of its base, and what it keeps: splits over stages, prediction layers, experts, formats."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.inherited import (
    as_host_type,
    has_formats_of,
    inherited_settings,
    is_decided,
    prediction_settings,
    settings_over,
)
from bridgepack.bridge.refusing.refusals import errors_of
from bridgepack.bridge.wiring import Packs, Setting
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.catalogue import RECIPES, SMALL
from tests.support.small_builds import with_changes

SPLITS = {
    "pipeline_model_parallel_layout": "Et|tL",
    "num_layers_in_first_pipeline_stage": 3,
    "num_layers_in_last_pipeline_stage": 0,
    "account_for_embedding_in_pipeline_split": True,
    "account_for_loss_in_pipeline_split": False,
}
UNDONE = {
    "model.pipeline_model_parallel_layout": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
}


def undone(model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return path -> value of what a recipe undoes of a base with a model."""
    recipe = with_changes(SFTRecipe.from_mapping(SMALL), changes)
    return {one.path: one.value for one in inherited_settings({"model": model}, recipe)}


def stages(pipeline: int | None, virtual: int | None = None) -> dict[str, Any]:
    """Return a base's numbers of stages and its splits."""
    sizes = {"pipeline_model_parallel_size": pipeline, "virtual_pipeline_model_parallel_size": virtual}
    return {**sizes, **SPLITS}


@pytest.mark.parametrize(
    ("base", "pipeline", "virtual", "expected"),
    [
        (stages(2), 2, None, {}),
        (stages(2, 1), 2, None, {}),
        (stages(2), 2, 1, {}),
        (stages(2, 2), 2, 2, {}),
        (stages(None), 1, None, {}),
        (stages(2), 4, None, UNDONE),
        (stages(2), 1, None, UNDONE),
        (stages(2, 2), 2, None, UNDONE),
        (stages(2), 2, 2, UNDONE),
        (stages(4, 2), 2, 4, UNDONE),
    ],
)
def test_splits_over_stages_are_kept_for_the_same_stages(
    base: dict[str, Any], pipeline: int, virtual: int | None, expected: dict[str, Any]
) -> None:
    found = undone(
        base,
        parallelism__pipeline_model_parallel_size=pipeline,
        parallelism__virtual_pipeline_model_parallel_size=virtual,
    )

    assert found == expected


@pytest.mark.parametrize(
    ("layout", "without"),
    [
        ("Ett|tmL", "Ett|tL"),
        ("Et*2|(t|)*2,m*2|L", "Et*2|(t|)*2|L"),
        ("Et|t(m)*2L", "Et|tL"),
        ([["embedding", "decoder"], ["decoder", "mtp", "loss"]], None),
        ([["embedding", "decoder"], ["decoder", {"_name_": "mtp"}, "loss"]], None),
        (None, None),
    ],
)
def test_prediction_layers_go_with_their_places_in_the_layout(layout: Any, without: Any) -> None:
    base = {"mtp_num_layers": 1, "pipeline_model_parallel_layout": layout}
    without = [["embedding", "decoder"], ["decoder", "loss"]] if isinstance(layout, list) else without

    found = undone(base)

    assert found.pop("model.mtp_num_layers", "kept") is None
    assert found == ({} if layout is None else {"model.pipeline_model_parallel_layout": without})
    assert not list(prediction_settings({"model": {**base, "mtp_num_layers": None}}))
    assert not list(prediction_settings({"model": {**base, "mtp_num_layers": 0}}))


def test_a_layout_that_is_undone_is_written_once() -> None:
    base = {**stages(2), "mtp_num_layers": 1}

    found = undone(base, parallelism__pipeline_model_parallel_size=4)

    assert found == {**UNDONE, "model.mtp_num_layers": None}


def test_rows_without_packing_keep_prediction_layers() -> None:
    changes = {"packing__mode": "none", "preprocessing__kind": "chat"}

    assert undone({"mtp_num_layers": 1}, **changes) == {}


@pytest.mark.parametrize(
    ("model", "changes", "expected"),
    [
        ({"num_moe_experts": 8, "add_bias_linear": True}, {}, {"model.expert_tensor_parallel_size": 1}),
        ({"num_moe_experts": 8, "add_bias_linear": False}, {}, {}),
        ({"num_moe_experts": None, "add_bias_linear": True}, {}, {}),
        (
            {"num_moe_experts": 8, "add_bias_linear": True},
            {"parallelism__expert_tensor_parallel_size": 1},
            {},
        ),
        ({"moe_router_padding_for_fp8": True}, {}, {"model.moe_router_padding_for_fp8": False}),
        ({"moe_router_padding_for_quantization": True}, {}, {"model.moe_router_padding_for_quantization": False}),
        ({"moe_router_padding_for_fp8": False}, {}, {}),
        ({"moe_router_padding_for_fp8": True}, {"precision__recipe": "bf16_with_fp8_current_scaling_mixed"}, {}),
        ({"cuda_graph_scope": "attn"}, {}, {}),
        (
            {"cuda_graph_scope": "attn"},
            {"cuda_graphs": {"implementation": "full_iteration"}},
            {"model.cuda_graph_scope": None},
        ),
        ({"cuda_graph_scope": None}, {"cuda_graphs": {"implementation": "full_iteration"}}, {}),
    ],
)
def test_what_does_not_fit_the_recipe_is_undone(
    model: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert undone(model, **changes) == expected


def test_formats_tell_mixed_precisions_apart() -> None:
    bf16 = {"bf16": True, "fp16": False, "fp8": None, "grad_reduce_in_fp32": True}

    assert has_formats_of(bf16, {**bf16, "grad_reduce_in_fp32": False})
    for name, value in (("bf16", False), ("fp16", True), ("fp8", "e4m3"), ("fp8_recipe", "tensorwise"), ("fp4", "x")):
        assert not has_formats_of(bf16, {**bf16, name: value})


def test_paths_are_decided_with_what_is_around_and_inside_them() -> None:
    settings = {"model.a": Setting(path="model.a", value=1, origin="recipe")}

    for path, expected in (("model.a", True), ("model.a.b", True), ("model", True), ("model.ab", False), ("mo", False)):
        assert is_decided(path, settings) == expected
    nothing = as_host_type(
        Setting(path="dataset.offline_packing_specs.packed_metadata_path", value=None, origin="recipe")
    )
    assert nothing.value is None


PRECISION = {"_target_": "precision", "bf16": True, "fp8": None, "grad_reduce_in_fp32": True}


@pytest.mark.parametrize(
    ("details", "changes", "is_written"),
    [
        ({**PRECISION, "grad_reduce_in_fp32": False}, {}, False),  # the base's own details stay
        (PRECISION, {}, True),
        ({**PRECISION, "bf16": False}, {}, True),
        ("bf16_mixed", {}, True),
        ({**PRECISION, "grad_reduce_in_fp32": False}, {"precision": {"recipe": "bf16_mixed"}}, True),
    ],
)
def test_details_of_the_base_s_precision_stay(details: Any, changes: dict[str, Any], is_written: bool) -> None:
    recipe = with_changes(SFTRecipe.from_mapping(SMALL), changes)

    found = settings_over({"mixed_precision": details}, recipe, None, PRECISION)

    assert ("mixed_precision" in found) == is_written


def test_what_a_recipe_says_wins_over_what_it_inherits() -> None:
    base = {"model": {"cuda_graph_scope": "attn", "num_moe_experts": 8, "add_bias_linear": True}}
    said = with_changes(SFTRecipe.from_mapping(SMALL), {"parallelism__expert_tensor_parallel_size": 2})
    silent = SFTRecipe.from_mapping(SMALL)
    packs = Packs(folder="packs", num_packs={"training": 8})

    path = "model.expert_tensor_parallel_size"
    assert settings_over(base, said, packs, PRECISION)[path].value == 2
    assert settings_over(base, silent, packs, PRECISION)[path].value == 1
    metadata = settings_over(base, silent, packs, PRECISION)["dataset.offline_packing_specs.packed_metadata_path"]
    assert metadata.value == Path("packs/bridge_metadata.json")
    assert isinstance(metadata.value, Path)
    data = settings_over(base, silent, packs, PRECISION)["dataset.offline_packing_specs.packed_train_data_path"]
    assert data.value == "packs/training"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method__kind": "lora"}, {"model.gradient_accumulation_fusion": False}),
        ({"method__kind": "lora", "method__target_modules": ["linear_qkv", "linear_proj"]}, {}),
        ({"method__kind": "lora", "parallelism__expert_model_parallel_size": 1}, {}),
        ({"method__kind": "dora"}, {}),
        ({}, {}),
    ],
)
def test_ranks_that_share_adapters_of_experts_add_their_gradients(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    of_experts = {"parallelism__expert_model_parallel_size": 2, **changes}

    assert undone({"num_moe_experts": 8, "gradient_accumulation_fusion": False}, **of_experts) == expected


def test_a_fusion_that_the_recipe_turns_on_is_an_error() -> None:
    recipe = load_recipe(f"{RECIPES}/gpt_oss.py:gpt_oss_120b_peft_8gpu_h100_bf16_recipe")
    fused = with_changes(recipe, {"bridge_overrides": {"model": {"gradient_accumulation_fusion": True}}})

    errors = errors_of(fused)

    assert [(error.code, error.where) for error in errors] == [
        ("BP849", "bridge_overrides.model.gradient_accumulation_fusion")
    ]
    assert errors_of(recipe) == ()


def over(model: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return path -> value of what is written over a base with a model, by a recipe with overrides of the model."""
    recipe = SFTRecipe.from_mapping({**SMALL, "bridge_overrides": {"model": overrides}})
    settings = settings_over({"model": model, "mixed_precision": "bf16_mixed"}, recipe, None, {})
    return {path.removeprefix("model."): setting.value for path, setting in settings.items()}


def test_a_layout_of_the_recipe_loses_the_prediction_layers_that_the_base_loses() -> None:
    base = {"mtp_num_layers": 1, "pipeline_model_parallel_layout": "EttmL"}
    layout = {"pipeline_model_parallel_layout": "Etm*1L"}

    removed, kept = over(base, layout), over(base, {**layout, "mtp_num_layers": 1})
    of_base = over(base, {"mtp_num_layers": 1})

    assert (removed["pipeline_model_parallel_layout"], removed["mtp_num_layers"]) == ("EtL", None)
    assert (kept["pipeline_model_parallel_layout"], kept["mtp_num_layers"]) == ("Etm*1L", 1)
    assert "pipeline_model_parallel_layout" not in of_base
