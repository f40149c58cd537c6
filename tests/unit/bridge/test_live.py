"""Live configs are copied with their classes, and read under the names that they have."""

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.bridge import live
from bridgepack.host import V06, V07


@dataclass
class Transformer:
    num_layers: int = 4
    shared: list[int] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Transformer":
        copied = object.__new__(Transformer)
        memo[id(self)] = copied
        vars(copied).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        return copied


@dataclass
class Built:
    """A model that is built from parts and answers for its transformer, as the host's GPTModelConfig does."""

    transformer: Transformer
    seq_length: int = 8
    extra_checkpoint_metadata: dict[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "transformer"), name)


@dataclass
class Container:
    model: Any
    shared: list[int]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "installed_release", lambda: V07)


def test_a_model_that_is_built_from_parts_is_copied_as_a_whole() -> None:
    shared = [1]
    config = Container(Built(Transformer(shared=shared)), shared)
    assert type(copy.deepcopy(config).model) is Transformer  # what the copy is for

    copied = live.copy_of(config)
    copied.model.seq_length, copied.model.transformer.num_layers = 16, 2
    copied.shared.append(2)

    assert type(copied.model) is Built
    assert (config.model.seq_length, config.model.num_layers, config.shared) == (8, 4, [1])
    assert copied.model.shared is copied.shared, "what two sections share is copied once"


@pytest.mark.usefixtures("release")
@pytest.mark.parametrize(
    ("model", "place", "value"),
    [
        (SimpleNamespace(hf_model_id="org/a"), "model.hf_model_id", "org/a"),
        (
            Built(Transformer(), extra_checkpoint_metadata={"hf_model_id": "org/b"}),
            "model.extra_checkpoint_metadata.hf_model_id",
            "org/b",
        ),
        (Built(Transformer()), "model.extra_checkpoint_metadata.hf_model_id", None),
    ],
)
def test_models_of_one_release_have_their_id_in_two_places(model: Any, place: str, value: str | None) -> None:
    config = Container(model, [])

    assert live.place_in(config, "model.hf_model_id") == place
    assert live.value_in(config, "model.hf_model_id") == value


@pytest.mark.usefixtures("release")
def test_other_settings_stay_where_they_are() -> None:
    assert live.place_in(Container(Built(Transformer()), []), "model.num_layers") == "model.num_layers"


def test_a_release_without_the_other_place_knows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "installed_release", lambda: V06)
    assert live.place_in(Container(Built(Transformer()), []), "model.hf_model_id") == "model.hf_model_id"
