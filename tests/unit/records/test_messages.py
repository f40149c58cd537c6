"""Messages keep which of their parts are settings, through copies, pickles and other messages."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict

import pytest

from bridgepack.records import Finding
from bridgepack.records.messages import Message, SettingNames, join, read_references, say, setting, with_user_paths

FIELDS = dict.fromkeys(("model.seq_length", "dataset.seq_length"), "packing.packed_sequence_size")


def user_path(path: str) -> str:
    return FIELDS.get(path, f"bridge_overrides.{path}")


def test_a_setting_is_named_as_the_user_names_it_and_a_value_stays_as_it_is() -> None:
    text = say("{model.seq_length} is {size:,} in {file}", size=4096, file="data/model.seq_length")
    assert text == "model.seq_length is 4,096 in data/model.seq_length"
    assert with_user_paths(text, user_path) == "packing.packed_sequence_size is 4,096 in data/model.seq_length"
    assert text.paths == ("model.seq_length",)
    assert with_user_paths("model.seq_length", user_path) == "model.seq_length"


def test_braces_of_a_value_are_no_settings() -> None:
    assert say("{value}", value="{model.seq_length}").parts == ("{model.seq_length}",)
    assert say("{{model.seq_length}}").paths == ()


def test_messages_in_messages_keep_their_settings() -> None:
    inner = say("{count} of {path}", count=2, path=setting("model.num_layers"))
    text = join(["a", say("b {inner}", inner=inner)], " and ")
    assert with_user_paths(text, user_path) == "a and b 2 of bridge_overrides.model.num_layers"


def test_several_settings_of_one_field_are_named_once() -> None:
    text = say("Set {model.seq_length & dataset.seq_length & ddp.bucket_size}.")
    assert text == "Set model.seq_length, dataset.seq_length and ddp.bucket_size."
    assert with_user_paths(text, user_path) == "Set packing.packed_sequence_size and bridge_overrides.ddp.bucket_size."
    assert setting("ddp.a", "ddp.b").paths == ("ddp.a", "ddp.b")


def test_a_docstring_has_references_among_other_braces() -> None:
    text = read_references("Set {model.seq_length} in `{% generation %}` or {type: {city: x}}.")
    assert (
        with_user_paths(text, user_path)
        == "Set packing.packed_sequence_size in `{% generation %}` or {type: {city: x}}."
    )
    assert read_references("no setting of {it}") == "no setting of {it}"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))])  # noqa: S301
def test_copies_keep_their_settings(duplicate: Callable[[Message], Message]) -> None:
    text = say("Set {model.seq_length} to {value}.", value=1)
    assert duplicate(text).parts == text.parts == ("Set ", SettingNames(("model.seq_length",)), " to ", "1", ".")


def test_json_has_plain_texts() -> None:
    text = say("Set {model.seq_length}.")
    finding = Finding(code="BP1", name="a", severity="error", where=text, found="", allowed="", why="", fix=text)
    assert json.loads(json.dumps(asdict(finding)))["fix"] == "Set model.seq_length."
    assert {text: 1}["Set model.seq_length."] == 1
