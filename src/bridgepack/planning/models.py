"""What a model's name says of its size."""

import re
from dataclasses import dataclass

from bridgepack.config.starting.nearest import name_words

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(?P<copies>\d+)x)?(?P<size>\d+(?:\.\d+)?)(?P<unit>[bm])(?![a-z0-9])")
_ACTIVE = re.compile(r"(?<![a-z0-9.])a(?P<size>\d+(?:\.\d+)?)b(?![a-z0-9])")
#: A mixture written as copies x size sends a token through two of them.
_COPIES_USED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """How large a model is."""

    billions: float  #: parameters
    active_billions: float  #: parameters that one token passes through; those of a dense model are all

    @property
    def is_dense(self) -> bool:
        """Whether every token passes through every parameter."""
        return self.active_billions >= self.billions


def model_size(name: str) -> ModelSize | None:
    """Return the size of a model; None where nothing tells it.

    Example: `org/chat-30B-A3B` -> 30 billion parameters, 3 of them active; `qwen2_1p5b_sft_config` -> 1.5 billion.

    Args:
        name: id on the Hugging Face hub, recipe of Megatron-Bridge, or a folder.
    """
    words = "-".join(name_words(name))
    match = _SIZE.search(words)
    if match is None:
        return None
    size = float(match["size"]) / (1000 if match["unit"] == "m" else 1)
    active = _ACTIVE.search(words)
    if active:
        return ModelSize(billions=size, active_billions=min(float(active["size"]), size))
    copies = int(match["copies"] or 1)
    return ModelSize(billions=size * copies, active_billions=size * min(copies, _COPIES_USED))
