"""Variables from outside a recipe win over its own, and are named by where they are set."""

from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.variables import with_variables
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.judging.subject import Environment
from tests.support.bridge_recipes import DENSE, recipe_of
from tests.support.messages import mentions


@pytest.mark.parametrize(
    ("variables", "backend", "found"),
    [
        ({"NVTE_FUSED_ATTN": "0", "NVTE_FLASH_ATTN": "1"}, "auto", "0, and model.attention_backend is auto"),
        ({"NVTE_FUSED_ATTN": "0"}, None, None),
        ({"NVTE_FUSED_ATTN": 0}, "fused", "0, and model.attention_backend is fused"),
        ({"NVTE_FUSED_ATTN": "0", "NVTE_FLASH_ATTN": "1"}, "flash", None),
        ({"NCCL_DEBUG": "WARN"}, None, None),
    ],
)
def test_variable_of_a_recipe_against_its_backend(
    variables: dict[str, Any], backend: str | None, found: str | None
) -> None:
    recipe = recipe_of(DENSE, environment=variables, model__attention_backend=backend)
    findings = check_target(recipe, CheckOptions(select=("BP734",))).findings

    assert [(one.where, one.found, one.severity) for one in findings] == (
        [("environment.NVTE_FUSED_ATTN", found, Severity.ERROR)] if found else []
    )
    assert all(one.fix.startswith("Set model.attention_backend to flash, and remove") for one in findings)


def test_variables_act_where_the_backend_is_null_and_padded_rows_have_no_kernel_left() -> None:
    variables = {"NVTE_FUSED_ATTN": "0", "NVTE_FLASH_ATTN": "1"}
    sizes = {"context_parallel_size": 2, "num_gpus": 2}
    recipe = recipe_of("qwen3_8b_sft_4gpu_h100_bf16_config", environment=variables, parallelism=sizes)
    (finding,) = check_target(recipe, CheckOptions(select=("BP734",))).findings

    assert (finding.where, finding.severity) == ("environment.NVTE_FUSED_ATTN", Severity.ERROR)
    assert mentions(finding.found, "0, model.attention_backend is null, ", "sequences are padded", "no kernel is left")
    third = Environment(versions={"flash-attn-3": "3.0.0"}, origin="a test")
    assert check_target(recipe, CheckOptions(select=("BP734",), environment=third)).findings == ()


def test_variables_of_the_process_win_and_secrets_and_references_stay_out() -> None:
    config = config_of_recipe(recipe_of(DENSE, environment={"NVTE_FUSED_ATTN": "1", "MINE": "2"}))
    outside = {"NVTE_FUSED_ATTN": "0", "NVTE_FLASH_ATTN": "${env:X}", "HF_TOKEN": "secret"}
    found = with_variables(config, outside, place="executor.env_vars")

    assert found.values["env_vars"]["NVTE_FUSED_ATTN"] == "0"
    assert found.values["env_vars"]["MINE"] == "2"
    assert {"NVTE_FLASH_ATTN", "HF_TOKEN"} & set(found.values["env_vars"]) == set()
    assert found.user_path("env_vars.NVTE_FUSED_ATTN") == "executor.env_vars.NVTE_FUSED_ATTN"
    assert with_variables(config, {"HF_TOKEN": "secret"}, place="x") is config


def test_no_kernel_is_left_where_variables_turn_all_off_also_for_sequences_without_padding() -> None:
    variables = dict.fromkeys(("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"), "0")
    recipe = recipe_of("qwen3_8b_sft_4gpu_h100_bf16_config", environment=variables)
    (finding,) = check_target(recipe, CheckOptions(select=("BP734",))).findings

    assert mentions(finding.found, "0, as the two others", "model.attention_backend is null", "no kernel is left")


def test_variable_that_is_missing_is_named_as_a_recipe_sets_it() -> None:
    recipe = recipe_of(DENSE, bridge_overrides={"model": {"deterministic_mode": True}})
    findings = check_target(recipe, CheckOptions(select=("BP878",))).findings

    names = ["NCCL_ALGO", "NVTE_ALLOW_NONDETERMINISTIC_ALGO"]
    assert [finding.where for finding in findings] == [f"environment.{name}" for name in names]
