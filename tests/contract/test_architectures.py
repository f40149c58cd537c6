"""What a family's architecture is said to have is what the host's own providers have for every recipe of it."""

from collections import Counter
from typing import Any

import pytest

from bridgepack.bridge.container import config_of_container
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.families import ARCHITECTURES, family_of
from bridgepack.rules.engine.subject import Run

pytestmark = pytest.mark.bridge
#: Recipes choose the exchange; only the families that need another one than the default have it from the checkpoint.
CHOSEN_BY_RECIPES = {"cp_comm_type"}
#: Families of the table that no recipe of 0.6.2 is made for.
WITHOUT_RECIPE = {"deepseek_v2", "deepseek_v3"}


def _comparable(name: str, value: Any) -> Any:
    """Return a value as far as rules look at it: of a pattern of layers, whether it has Mamba layers."""
    return "M" in str(value or "") if name == "hybrid_layer_pattern" else value or None


def test_families_have_what_the_host_gives_them(upstream_configs: dict[str, Any]) -> None:
    num_checked: Counter[str] = Counter()
    for place, container in upstream_configs.items():
        config = config_of_container(container, place=place)
        family = family_of(config)
        if family is None or family.name not in ARCHITECTURES:
            continue
        subject = Run(config=config, versions=target_versions())
        for name, known in ARCHITECTURES[family.name].items():
            if name not in CHOSEN_BY_RECIPES or known is not None:
                assert _comparable(name, subject.of_model(name)) == _comparable(name, known), (place, name)
                num_checked[family.name] += 1
    assert set(num_checked) == set(ARCHITECTURES) - WITHOUT_RECIPE
