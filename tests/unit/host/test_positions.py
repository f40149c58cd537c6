"""The table of positions is what the host takes from each model's config.json, as the files of its releases say."""

import pytest

from bridgepack.host import RELEASES, HostRelease
from bridgepack.host.positions import models_with_positions, positions_of

#: Their configs here do not state positions, and the host's provider has its own default; those of K-EXAONE-2.0 are not
#: checked against a published file.
NOT_STATED = {"MiniMaxAI/MiniMax-M3", "deepseek-ai/DeepSeek-V4-Flash", "LGAI-EXAONE/K-EXAONE-2.0-750B-A37B"}
every_release = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)


@every_release
def test_positions_are_those_of_the_configs(release: HostRelease) -> None:
    num_checked = 0
    for name in models_with_positions():
        model, known = release.facts.model_by_name(name), positions_of(name)
        assert model is not None
        assert known is not None
        assert (known.most, known.factor) == (model["seq_length"], _own_factor(model)), name
        num_checked += 1
    assert num_checked > 50


@every_release
def test_every_model_of_the_hub_with_positions_is_in_the_table(release: HostRelease) -> None:
    left_out = {name for name in release.facts.models if positions_of(name) is None}
    without = {
        name for name in left_out if (release.facts.model_by_name(name) or {}).get("position_embedding_type") == "none"
    }
    assert left_out - without == NOT_STATED


def _own_factor(model: dict[str, object]) -> object:
    if "yarn" in (model.get("position_embedding_type"), model.get("rope_type")):
        return model.get("yarn_rotary_scaling_factor") or model.get("rotary_scaling_factor")
    return model["rope_scaling_factor"] if model.get("rope_scaling") else 1.0
