"""What is offloaded inside the experts besides the fused MLP is named."""

import pytest

from bridgepack.rules.run.validated.offloading import activations_offloaded_without_what_that_needs
from tests.unit.rules.run_cases import subject_of


@pytest.mark.parametrize("other", ["expert_fc1", "moe_act"])
def test_the_module_beside_the_fused_mlp_is_named(other: str) -> None:
    changes = {
        "model.fine_grained_activation_offloading": True,
        "model.offload_modules": ["fused_group_mlp", other],
        "model.use_transformer_engine_op_fuser": True,
    }
    found = [one.found for one in activations_offloaded_without_what_that_needs.check(subject_of({"set": changes}))]

    assert found == [f"fused_group_mlp with {other}"]
