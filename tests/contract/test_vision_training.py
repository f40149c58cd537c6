"""Packs of text train models with vision in megatron-bridge's own loop on CPU as the table of classes says."""

import json
from typing import Any

import pytest

from bridgepack.api import build
from tests.support import tiny_recipes as tiny
from tests.support.host_forks import asked
from tests.support.installed_host import host_release
from tests.support.processes import ONE_RANK
from tests.support.small_builds import write_conversations
from tests.support.vision_training import MODELS, NUM_STEPS, VisionRequest

pytestmark = [pytest.mark.bridge, pytest.mark.full]

Changes = dict[str, Any]

#: 0.7 gives the model the padding's mask, which it does not take; 0.6 gets further.
WITH_THE_STEP_FOR_TEXT = (
    "TypeError: Ministral3Model.forward() got an unexpected keyword argument 'padding_mask'"
    if host_release().gives_padding_mask
    else "AttributeError: 'NoneType' object has no attribute 'view'"
)
TRAINED: tuple[Changes, ...] = (
    {"model": "ministral3"},
    {"model": "qwen2_5_vl", "num_packs": 1},
    {"model": "qwen2_5_vl", "loader": "cyclic"},
)
REFUSED: tuple[tuple[Changes, str], ...] = (
    ({"model": "ministral3", "is_step_for_text": True}, WITH_THE_STEP_FOR_TEXT),
    ({"model": "qwen2_5_vl"}, "ValueError: MCore THD position preparation requires non-empty packed rows"),
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what the runs saw, those of TRAINED and then those of REFUSED; importing the host takes longest."""
    folder = write_conversations(tmp_path_factory.mktemp("vision"), limit=200, vocab_size=tiny.VOCAB_SIZE)
    tiny.write_model(folder / "dense", "dense")
    for name, config in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    build(tiny.tiny_recipe(folder, "dense", "full"), output=folder / "packs", num_workers=0)
    usual = {"num_packs": 2, "loader": "batch", "is_step_for_text": False}
    places = {"artifact": str(folder / "packs"), "work": str(folder)}
    requests = [VisionRequest(**{**usual, **places, **one}) for one in (*TRAINED, *(one for one, _ in REFUSED))]
    variables = {**ONE_RANK, "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    return asked("tests.support.vision_training", requests, folder, **variables)


def test_losses_fall_and_attention_is_packed_where_the_table_allows_it(seen: list[dict[str, Any]]) -> None:
    for one in seen[: len(TRAINED)]:
        assert len(one["losses"]) == NUM_STEPS, one
        assert min(one["losses"]) < 0.9 * one["losses"][0]
        assert one["num_dense_calls"] == 0 < one["num_thd_calls"]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_the_table_refuses_ends_in_the_first_step(seen: list[dict[str, Any]], place: int) -> None:
    assert seen[len(TRAINED) + place]["error"].startswith(REFUSED[place][1])
