"""Two configs are compared setting by setting."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.differences import MISSING, as_written, differences, is_representable, without_classes


class Kernel(enum.Enum):
    flash = 1
    fused = 2


@dataclass
class Model:
    kernel: Any = Kernel.flash
    folder: Any = "packs"
    activation: Any = None


@dataclass
class Container:
    model: Model = field(default_factory=Model)
    mixed_precision: Any = None
    env_vars: dict[str, int] = field(default_factory=dict)


def test_same_values_in_other_forms_are_the_same() -> None:
    assert differences(Container(), Container(model=Model(kernel="flash", folder=Path("packs")))) == {}


def test_differences_are_named_by_path() -> None:
    found = differences(Container(env_vars={"A": 1}), Container(model=Model(kernel=Kernel.fused), env_vars={"B": 2}))

    assert list(found) == ["model.kernel", "env_vars.A", "env_vars.B"]
    assert as_written(found["model.kernel"][1]) == "fused"
    assert found["env_vars.A"] == (1, MISSING)


def test_functions_and_objects_are_not_representable() -> None:
    found = differences(Container(), Container(model=Model(activation=len)))

    assert not is_representable(found["model.activation"][1])
    assert not is_representable({"_target_": "a.B", "x": 1})
    assert not is_representable(MISSING)
    assert is_representable({"a": [1, "b", None]})
    assert without_classes({"_target_": "a.B", "x": 1, "y": None}) == {"x": 1}
