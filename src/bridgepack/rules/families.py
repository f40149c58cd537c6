"""Families of models, as far as packing tells them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.records import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A family of models.

    Attributes:
        name: short, e.g. `qwen3_next`.
        evidence: what told it, e.g. `Qwen/Qwen3-Next-80B-A3B-Instruct`.
    """

    name: str
    evidence: str


#: Family -> what its models are called, in lower case without separators; the first that fits counts.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("qwen3_next", r"qwen3next"),
    ("qwen3_omni", r"qwen3omni"),
    ("qwen2_5_omni", r"qwen2?5?omni"),
    ("qwen_audio", r"qwen\d*(audio|asr)"),
    ("qwen3_5_vl", r"qwen35(vl|moevl)?"),
    ("qwen3_vl", r"qwen3(moe)?vl"),
    ("qwen2_5_vl", r"qwen25?vl"),
    ("qwen3_moe", r"qwen3(moe|\d+ba\d+b)"),
    ("qwen3", r"qwen3"),
    ("qwen2", r"qwen2"),
    ("gemma4_vl", r"gemma4"),
    ("gemma3_vl", r"gemma3(vl|visionlanguage)|gemma3n?\d*b?itvl"),
    ("gemma3", r"gemma3"),
    ("gemma2", r"gemma2"),
    ("gemma", r"gemma"),
    ("glm_4_5_vl", r"glm4?5v|glm45v|glmvl"),
    ("glm_4_5", r"glm4?5(air)?|glm4moe|glm45|glm47"),
    ("glm_5", r"glm5|glmmoedsa"),
    ("deepseek_v4", r"deepseekv4"),
    ("deepseek_v3_2", r"deepseekv32"),
    ("moonlight", r"moonlight"),
    ("kimi_vl", r"kimi(k25)?vl|kimik25"),
    ("kimi", r"kimi"),
    ("deepseek_v3", r"deepseekv3|deepseekr1"),
    ("deepseek_v2", r"deepseekv2"),
    ("nemotron_omni", r"nemotron\w*omni"),
    ("nemotron_vl", r"nemotron\w*vl"),
    ("llama_nemotron", r"llama\w*nemotron"),
    ("nemotron_h", r"nemotronh|nemotron3|nemotronnano|nvidianemotron"),
    ("nemotron", r"nemotron"),
    ("falcon_h1", r"falconh1"),
    ("exaone_4_5", r"exaone45"),
    ("exaone", r"exaone"),
    ("gpt_oss", r"gptoss"),
    ("mimo", r"mimo"),
    ("minimax", r"minimax"),
    ("ministral3", r"ministral3"),
    ("mistral", r"mistral|mixtral"),
    ("olmoe", r"olmoe"),
    ("step", r"step3|stepfun"),
    ("llama", r"llama"),
    ("mamba", r"mamba"),
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def family_named(text: str) -> str | None:
    """Return the family that a model id, a class or a recipe is called after, or None."""
    plain = _SEPARATORS.sub("", text.lower())
    return next((name for name, pattern in _PATTERNS if re.search(pattern, plain)), None)


def family_of(config: RunConfig) -> Family | None:
    """Return the family of a run's model: from its model id, else its class, else what the user named."""
    model = config.values.get("model")
    model = model if isinstance(model, Mapping) else {}
    target = str(model.get("_target_") or "")
    for evidence in (model.get("hf_model_id"), target.rpartition(".")[2], _tokenizer_model(config), config.place):
        name = family_named(str(evidence or ""))
        if name is not None:
            return Family(name=name, evidence=str(evidence))
    return None


def _tokenizer_model(config: RunConfig) -> Any:
    tokenizer = config.values.get("tokenizer")
    return tokenizer.get("tokenizer_model") if isinstance(tokenizer, Mapping) else None
