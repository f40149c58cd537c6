"""What `pipeline_model_parallel_layout` says: the kinds of layers in each stage."""

import re
from collections.abc import Mapping
from typing import Any

from bridgepack.config.errors import quote
from bridgepack.records.messages import say, setting
from bridgepack.records.words import index_in
from bridgepack.rules.judging.context import CannotJudgeError

_LAYOUT = "model.pipeline_model_parallel_layout"
#: Letter -> kind of layer.
LETTERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
#: Times that a layer is repeated at most; no model has as many.
_MOST_TIMES = 1_000
_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))


def _times(layout: str, text: str) -> int:
    times = index_in(_MOST_TIMES, text)
    if times is None:
        fault = f"which repeats a layer {quote(text)} times; no more than {_MOST_TIMES:,} are judged"
        raise CannotJudgeError(say("{path} is {layout!r}, {fault}", path=setting(_LAYOUT), layout=layout, fault=fault))
    return times


def stages_of(layout: Any) -> list[list[str]]:
    """Return the kinds of layers in each stage: `Et*2|tL` -> `[[embedding, decoder, decoder], [decoder, loss]]`.

    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py of 0.19.2.
    """
    if isinstance(layout, str):
        text = layout.replace(",", "")
        for pattern in _REPEATED:
            text = pattern.sub(lambda match: match[1] * _times(layout, match[2]), text)
        return [[LETTERS.get(letter, letter) for letter in stage] for stage in text.split("|")]
    if isinstance(layout, list) and all(isinstance(stage, list) for stage in layout):
        names = [[kind.get("_name_") if isinstance(kind, Mapping) else kind for kind in stage] for stage in layout]
        return [[str(name).strip().lower() for name in stage] for stage in names]
    kinds = "neither a string nor a list of lists"
    raise CannotJudgeError(say("{path} is {layout!r}, {kinds}", path=setting(_LAYOUT), layout=layout, kinds=kinds))
