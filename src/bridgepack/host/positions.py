"""The positions that models of the hub were trained for: data, nothing is imported.

Source: `max_position_embeddings` of each model's config.json, and the factor by which it scales rotary embeddings, as
megatron-bridge 0.6.2 takes them (`seq_length` of its provider). Models without positional embeddings are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Positions:
    """The positions of a model."""

    most: int  #: positions that it was trained for, with its own scaling
    factor: float = 1.0  #: its own scaling of rotary embeddings; 1 for none


#: (positions, factor of their scaling) -> ids on the hub
_MODELS: Mapping[tuple[int, float], str] = {
    (8192, 1.0): "meta-llama/Meta-Llama-3-8B meta-llama/Meta-Llama-3-70B Qwen/Qwen2-Audio-7B-Instruct "
    "google/gemma-2-2b google/gemma-2-9b google/gemma-2-27b moonshotai/Moonlight-16B-A3B",
    (32768, 1.0): "Qwen/Qwen2.5-0.5B google/gemma-3-1b-pt",
    (40960, 1.0): "Qwen/Qwen3-0.6B Qwen/Qwen3-1.7B Qwen/Qwen3-4B Qwen/Qwen3-8B Qwen/Qwen3-14B Qwen/Qwen3-32B "
    "Qwen/Qwen3-30B-A3B Qwen/Qwen3-235B-A22B",
    (65536, 1.0): "Qwen/Qwen3-Omni-30B-A3B-Instruct zai-org/GLM-4.5V",
    (65536, 16.0): "LGAI-EXAONE/EXAONE-4.0-1.2B",
    (128000, 1.0): "Qwen/Qwen2.5-VL-3B-Instruct Qwen/Qwen2.5-VL-7B-Instruct Qwen/Qwen2.5-VL-32B-Instruct "
    "Qwen/Qwen2.5-VL-72B-Instruct",
    (131072, 1.0): "Qwen/Qwen2-0.5B Qwen/Qwen2-1.5B Qwen/Qwen2-7B Qwen/Qwen2-72B Qwen/Qwen2.5-1.5B Qwen/Qwen2.5-7B "
    "Qwen/Qwen2.5-14B Qwen/Qwen2.5-32B Qwen/Qwen2.5-72B google/gemma-3-4b-it google/gemma-3-12b-it "
    "google/gemma-3-27b-it zai-org/GLM-4.5 zai-org/GLM-4.5-Air",
    (131072, 8.0): "meta-llama/Meta-Llama-3.1-8B meta-llama/Meta-Llama-3.1-70B meta-llama/Meta-Llama-3.1-405B",
    (131072, 32.0): "meta-llama/Llama-3.2-1B meta-llama/Llama-3.2-3B openai/gpt-oss-20b openai/gpt-oss-120b",
    (163840, 40.0): "deepseek-ai/DeepSeek-V3",
    (262144, 1.0): "Qwen/Qwen3-Next-80B-A3B-Instruct Qwen/Qwen3-VL-8B-Instruct Qwen/Qwen3-VL-30B-A3B-Instruct "
    "Qwen/Qwen3-VL-235B-A22B-Instruct Qwen/Qwen3.5-0.8B Qwen/Qwen3.5-2B Qwen/Qwen3.5-4B Qwen/Qwen3.5-9B "
    "Qwen/Qwen3.5-27B Qwen/Qwen3.5-35B-A3B Qwen/Qwen3.5-122B-A10B Qwen/Qwen3.5-397B-A17B "
    "google/gemma-4-26B-A4B-it LGAI-EXAONE/K-EXAONE-236B-A23B stepfun-ai/Step-3.7-Flash",
    (262144, 16.0): "mistralai/Ministral-3-3B-Instruct-2512 mistralai/Ministral-3-8B-Instruct-2512 "
    "mistralai/Ministral-3-14B-Instruct-2512 LGAI-EXAONE/EXAONE-4.5-33B",
    (1048576, 1.0): "zai-org/GLM-5.2",
}
_OF_MODEL: Mapping[str, Positions] = {
    model: Positions(most=max_positions, factor=factor)
    for (max_positions, factor), ids in _MODELS.items()
    for model in ids.split()
}


def positions_of(hub_id: str) -> Positions | None:
    """Return the positions of a model of the hub, or None if they are not known here."""
    return _OF_MODEL.get(hub_id)


def models_with_positions() -> tuple[str, ...]:
    """Return the ids of the models whose positions are known."""
    return tuple(_OF_MODEL)
