"""Bytes of a weight and its states, from the settings of optimisers."""

from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.host import TARGET
from bridgepack.planning.layout import States
from bridgepack.planning.states import states_of
from tests.support.shipped_plans import shipped_recipe

SHARED = {"use_distributed_optimizer": True}
AWARE = {**SHARED, "use_precision_aware_optimizer": True, "exp_avg_dtype": {"_target_": "torch.bfloat16"}}


@pytest.mark.parametrize(
    ("values", "states"),
    [
        ({"optimizer": SHARED, "mixed_precision": "bf16_mixed"}, States(own=6, shared=12)),
        ({"ddp": {**SHARED, "grad_reduce_in_fp32": False}, "mixed_precision": "bf16_mixed"}, States(own=6, shared=12)),
        ({"optimizer": {}, "mixed_precision": "bf16_mixed"}, States(own=18, shared=0)),
        ({"optimizer": SHARED, "mixed_precision": {"grad_reduce_in_fp32": False}}, States(own=4, shared=12)),
        ({"optimizer": SHARED, "ddp": {"grad_reduce_in_fp32": False}}, States(own=4, shared=12)),
        ({"optimizer": AWARE}, States(own=6, shared=10)),
        ({"optimizer": {**AWARE, "exp_avg_sq_dtype": "torch.uint8"}}, States(own=6, shared=7)),
        ({"optimizer": {"optimizer": "dist_muon"}}, States(own=14, shared=0)),
    ],
)
def test_bytes_are_those_of_the_formats(values: dict[str, Any], states: States) -> None:
    assert states_of(values, TARGET.facts) == states


def test_a_base_tells_its_formats() -> None:
    recipe = shipped_recipe("moonlight_16b_sft_8gpu_h100_bf16_8k_config")

    # bf16 weights and gradients; fp32 weights, and bf16 moments
    assert states_of(config_of_recipe(recipe).values, recipe.release.facts) == States(own=4, shared=8)
