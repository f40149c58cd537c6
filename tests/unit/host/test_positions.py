"""The table of positions is what the host takes from each model's config.json, which `bases.json` holds too."""

from bridgepack.host import TARGET
from bridgepack.host.positions import models_with_positions, positions_of

#: Their configs here do not state positions, and the host's provider has its own default.
NOT_STATED = {"MiniMaxAI/MiniMax-M3", "deepseek-ai/DeepSeek-V4-Flash"}


def test_positions_are_those_of_the_configs() -> None:
    num_checked = 0
    for name in models_with_positions():
        model, known = TARGET.facts.model_named(name), positions_of(name)
        assert model is not None
        assert known is not None
        assert (known.most, known.factor) == (model["seq_length"], _own_factor(model)), name
        num_checked += 1
    assert num_checked > 50


def test_every_model_of_the_hub_with_positions_is_in_the_table() -> None:
    left_out = {name for name in TARGET.facts.models if positions_of(name) is None}
    without = {
        name for name in left_out if (TARGET.facts.model_named(name) or {}).get("position_embedding_type") == "none"
    }
    assert left_out - without == NOT_STATED


def _own_factor(model: dict[str, object]) -> object:
    if "yarn" in (model.get("position_embedding_type"), model.get("rope_type")):
        return model.get("yarn_rotary_scaling_factor") or model.get("rotary_scaling_factor")
    return model["rope_scaling_factor"] if model.get("rope_scaling") else 1.0
