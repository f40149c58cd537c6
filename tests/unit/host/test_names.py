"""One table leads from canonical names to those of a release and back, into mappings, too."""

import pytest

from bridgepack.host import V06, V07
from bridgepack.host.names import canonical_name, in_canonical_names, move_to_canonical_names, name_in

HERE, THERE = "model.hf_model_id", "model.extra_checkpoint_metadata.hf_model_id"


def test_names_lead_both_ways() -> None:
    assert (name_in(V06, HERE), name_in(V07, HERE)) == (HERE, THERE)
    assert canonical_name(V07, THERE) == HERE
    assert canonical_name(V07, f"{THERE.rpartition('.')[0]}.hf_model_revision").endswith("hf_model_revision")


def test_an_entry_of_a_mapping_is_a_setting() -> None:
    saved = {"model": {"extra_checkpoint_metadata": {"hf_model_id": "org/a", "hf_model_revision": "1"}}}

    values, moved = in_canonical_names(saved, V07)

    assert values == {"model": {"hf_model_id": "org/a", "extra_checkpoint_metadata": {"hf_model_revision": "1"}}}
    assert moved == {HERE: THERE}
    assert saved["model"]["extra_checkpoint_metadata"]["hf_model_id"] == "org/a", "what is given is not changed"


def test_settings_of_ones_own_are_moved_without_a_copy() -> None:
    own = {"model": {"extra_checkpoint_metadata": {"hf_model_id": "org/a"}}, "train": {"train_iters": 1}}
    model, train = own["model"], own["train"]

    values, moved = move_to_canonical_names(own, V07)

    assert moved == {HERE: THERE}
    assert values["model"] is model
    assert values["train"] is train
    assert model == {"hf_model_id": "org/a", "extra_checkpoint_metadata": {}}


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"hf_model_id": "org/a"}},
        {"model": {"extra_checkpoint_metadata": None}},
        {"model": {"hf_model_id": "org/a", "extra_checkpoint_metadata": {"hf_model_id": "org/b"}}},
        {"train": {"train_iters": 1}},
        {"model": None},
    ],
)
def test_what_has_no_other_name_stays(values: dict[str, object]) -> None:
    assert in_canonical_names(values, V07) == (values, {})
