"""What a model's name, or its config.json, says of its size."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    num_layers: int | None = None  #: None where it is not known
    num_query_groups: int | None = None  #: key-value heads; None where it is not known
    num_experts: int | None = None  #: 0 for a dense model, None where it is not known

    @property
    def is_dense(self) -> bool:
        """Whether every token passes through every parameter."""
        return self.active_billions >= self.billions


def model_size(name: str) -> ModelSize | None:
    """Return the size of a model; None where nothing tells it.

    Example: `org/chat-30B-A3B` -> 30 billion parameters, 3 of them active; `qwen2_1p5b_sft_config` -> 1.5 billion.

    Args:
        name: id on the Hugging Face hub, recipe of Megatron-Bridge, or a folder with a config.json.
    """
    return _from_folder(Path(name)) or _from_name(name)


def _from_name(name: str) -> ModelSize | None:
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


def _from_folder(folder: Path) -> ModelSize | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return _from_config(config.get("text_config", config))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None


def _from_config(config: dict[str, Any]) -> ModelSize:
    """Return the size that a Hugging Face config describes: embeddings, attention and feed-forward layers."""
    layers, hidden, heads = (config[key] for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    groups = config.get("num_key_value_heads") or heads
    experts = next(
        (config[key] for key in ("num_experts", "n_routed_experts", "num_local_experts") if key in config), 0
    )
    width = config.get("moe_intermediate_size") if experts else None
    head = config.get("head_dim") or hidden // heads
    per_expert = 3 * hidden * (width or config["intermediate_size"])
    shared = 2 * config["vocab_size"] * hidden + layers * 2 * hidden * head * (heads + groups)
    used = config.get("num_experts_per_tok", 1) if experts else 1
    return ModelSize(
        billions=(shared + layers * per_expert * max(experts, 1)) / 1e9,
        active_billions=(shared + layers * per_expert * used) / 1e9,
        num_layers=layers,
        num_query_groups=groups,
        num_experts=experts,
    )
