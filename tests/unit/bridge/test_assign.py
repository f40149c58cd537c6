"""Settings are written where the object has such a field, as what the field declares, and nowhere else."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from bridgepack.bridge.plain import value_at
from bridgepack.bridge.wiring import Setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.values import declared_types, host_value
from bridgepack.errors import ConfigError


@dataclass
class Model:
    num_layers: int = 4
    cp_comm_type: str | None = None


@dataclass
class Built:
    """A model that is built from parts, as the host's GPTModelConfig is."""

    transformer: Model
    vocab_size: int = 8


@dataclass
class Overlap:
    tp_comm_overlap: bool
    bucket_size: int | None = None


@dataclass
class Container:
    model: Any
    env_vars: dict[str, str] = field(default_factory=dict)
    dataset_kwargs: dict[str, Any] | None = None
    comm_overlap: Overlap | None = None
    mixed_precision: Any = None


def override(path: str, value: Any) -> Setting:
    return Setting(path=path, value=value, origin="recipe", field=f"bridge_overrides.{path}")


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        (
            Container(model=Model()),
            {"dataset_kwargs.pad": True, "comm_overlap.bucket_size": 64, "comm_overlap.tp_comm_overlap": False},
            Container(model=Model(), dataset_kwargs={"pad": True}, comm_overlap=Overlap(False, bucket_size=64)),
        ),
        (
            Container(model=Model(num_layers=8), dataset_kwargs={"pad": True}),
            {"model": {}, "dataset_kwargs": {}},
            Container(model=Model(num_layers=8), dataset_kwargs={"pad": True}),
        ),
        (
            Container(model=Built(transformer=Model())),
            {"model.num_layers": 8, "model.vocab_size": 16},
            Container(model=Built(transformer=Model(num_layers=8), vocab_size=16)),
        ),
    ],
    ids=["none is made", "an empty one changes nothing", "the inner config is found"],
)
def test_sections(config: Container, values: dict[str, Any], expected: Container) -> None:
    assign(config, [override(path, value) for path, value in values.items()])

    assert config == expected
    assert all(value_at(config, path) == value for path, value in values.items() if value != {})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.cp_com_type", "a2a", "Model has no field 'cp_com_type'. Did you mean cp_comm_type?"),
        ("modle.num_layers", 4, "Container has no field 'modle'. Did you mean model?"),
        ("model.num_layers.first", 4, "lies below model.num_layers, a plain value, 4"),
        ("model.num_layers", "four", "is 'four'; allowed: a whole number"),
        ("model.__class__", "x", "Model has no field '__class__'"),
        ("comm_overlap.bucket_size", 64, "this Container and needs tp_comm_overlap"),
    ],
)
def test_wrong_path_or_value_is_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        assign(Container(model=Model()), [override(path, value)])

    assert [problem.field for problem in raised.value.problems] == [f"bridge_overrides.{path}"]
    assert message in str(raised.value)


def test_value_is_copied() -> None:
    config, value = Container(model=Model()), {"a": [1]}

    assign(config, [override("dataset_kwargs", value)])
    value["a"].append(2)

    assert config.dataset_kwargs == {"a": [1]}


class Kernel(enum.Enum):
    flash = 1
    fused = 2


@dataclass
class Buffers:
    is_on: bool
    num_buffers: int = 2


@dataclass
class Base:
    kernel: Kernel = Kernel.flash
    rate: float = 0.5


@dataclass
class Host(Base):
    kind: Literal["single", "batch"] | None = None
    folder: str | Path | None = None
    metadata: Path | None = None
    names: list[str] = field(default_factory=list)
    overlap: Buffers | None = None
    unresolved: "NotThere | None" = None  # type: ignore[name-defined] # noqa: F821
    activation: Callable[[int], int] | None = None


TYPES = declared_types(Host)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel", "fused", Kernel.fused),
        ("kernel", None, None),
        ("rate", 1, 1.0),
        ("kind", "batch", "batch"),
        ("kind", None, None),
        ("metadata", "packs/bridge_metadata.json", Path("packs/bridge_metadata.json")),
        ("names", ("a", "b"), ["a", "b"]),
        ("overlap", {"is_on": True}, Buffers(is_on=True)),
        ("overlap", {"_target_": "anywhere.Buffers", "is_on": True, "num_buffers": 4}, Buffers(True, 4)),
        ("unresolved", "anything", "anything"),
    ],
)
def test_value_that_fits(name: str, value: Any, expected: Any) -> None:
    found = host_value(value, TYPES[name], field=name)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("kernel", "flsh", "flash, fused"),
        ("rate", True, "a number"),
        ("kind", "batches", "single, batch"),
        ("folder", 7, "a path or null"),
        ("names", "a", "a list"),
        ("names", [1], "a text"),
        ("overlap", {"is_onn": True}, "is_on?"),
        ("overlap", {"is_on": "yes"}, "true or false"),
        ("overlap", {"num_buffers": 4}, "what Buffers takes"),
        ("activation", "gelu", "a function"),
    ],
)
def test_value_that_does_not_fit(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as raised:
        host_value(value, TYPES[name], field=f"bridge_overrides.{name}")

    assert [problem.field for problem in raised.value.problems] == [f"bridge_overrides.{name}"]
    assert allowed in str(raised.value)


@pytest.mark.parametrize(
    ("annotation", "value"), [(tuple, (128, 0)), (tuple | None, (128, 0)), (tuple[int, int], (128, 0))]
)
def test_a_list_becomes_a_tuple_also_where_its_parts_have_no_types(annotation: Any, value: Any) -> None:
    assert host_value([128, 0], annotation, field="bridge_overrides.model.window_size") == value
