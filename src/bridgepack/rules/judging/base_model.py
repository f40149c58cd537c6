"""The model whose weights a run starts from, as rules compare it with the run's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.host.positions import Positions

UNKNOWN_MODEL = "the model of the weights is not known here"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModel:
    """A model of the host whose weights are loaded."""

    name: str  #: as messages name it, e.g. `the checkpoint /weights/llama`
    settings: Mapping[str, Any]  #: of its config, under canonical names; what is not known is not there
    positions: Positions | None = None  #: that it was trained for, where its folder says so
