"""What the sections of a run say about wrong values: one line, what is allowed, the nearest name."""

from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.catalogue import SMALL

KINDS = "allowed: full, lora, dora."


def _message(values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping({**SMALL, **values})
    return str(raised.value)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"kind": "lroa"}, f"method.kind is 'lroa'; {KINDS} Did you mean lora?"),
        ({"kind": "adapters"}, f"method.kind is 'adapters'; {KINDS} Use one of these."),
        ({"dim": 8}, f"method.kind is missing; {KINDS} Use one of these."),
        ("lora", "method is 'lora'; allowed: a section with named fields. Write method: {kind: lora}."),
        ({"kind": "full", "dim": 64}, "method.dim is not a field of full; lora and dora have it. Set method.kind to "),
        ({"kind": "lora", "dims": 64}, "method.dims is not a field of lora; allowed: alpha, dim, dropout, kind, tar"),
        ({"kind": "dora", "dim": 0}, "method.dim is 0; allowed: at least 1. Raise it."),
        ({"kind": "lora", "dropout": 1}, "method.dropout is 1; allowed: less than 1.0. Lower it."),
        ({"kind": "lora", "target_modules": []}, "method.target_modules is []; allowed: a list of at least 1 entry."),
    ],
    ids=str,
)
def test_method(method: Any, message: str) -> None:
    assert _message({"method": method}).startswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"precision": {"recipe": "bf16"}}, "precision.recipe is 'bf16'; allowed: 'bf16_mixed', 'fp16_mixed', "),
        ({"precision": {"recipe": "bf16"}}, ". Did you mean bf16_mixed?"),
        ({"parallelism": {"cp_comm_type": "a2a_p2p"}}, "parallelism.cp_comm_type is 'a2a_p2p'; allowed: 'p2p', 'a2a'"),
        ({"parallelism": {"cp_comm_type": "a2a_p2p"}}, "'all_gather' or 'a2a+p2p'. Did you mean a2a+p2p?"),
        (
            {"cuda_graphs": {"implementation": "transformer_engine", "modules": ["attn"]}},
            "cuda_graphs.modules.0 is 'attn'; allowed: 'mlp', 'moe', 'moe_router', 'moe_preprocess' or 'mamba'. ",
        ),
        (
            {"preprocessing": {"kind": "chat", "separator": ""}},
            "separator is not a field of chat; prompt_completion has",
        ),
        ({"environment": {"NCCL_DEBUG": [1]}}, "environment.NCCL_DEBUG is [1]; allowed: text, a whole number"),
        ({"schedule": {"num_epochs": 0}}, "schedule.num_epochs is 0; allowed: more than 0.0. Raise it."),
        ({"logging": {"wandb_projekt": "x"}}, "logging.wandb_projekt is not a field; allowed: log_interval, mlflow_e"),
        ({"logging": {"wandb_projekt": "x"}}, "wandb_project. Did you mean wandb_project?"),
    ],
    ids=str,
)
def test_sections_of_a_run(values: dict[str, Any], message: str) -> None:
    assert message in _message(values)
