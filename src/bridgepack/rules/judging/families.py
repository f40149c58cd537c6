"""Model families, as far as they differ in packing."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bridgepack.records import RunConfig
from bridgepack.rules.judging.context import section


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A model family, e.g. `qwen3_next`, and the name it was derived from, e.g. `Qwen/Qwen3-Next-80B-A3B-Instruct`."""

    name: str
    evidence: str


#: (family, pattern of its models' names in lower case without separators); the first match wins.
#: Source: model ids and provider classes of megatron-bridge 0.6.2, megatron/bridge/models and megatron/bridge/recipes.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("qwen2", r"r1distillqwen"),
    ("llama", r"r1distillllama"),
    ("qwen3_next", r"qwen3next"),
    ("qwen3_omni", r"qwen3omni"),
    ("qwen2_5_omni", r"qwen(25|2)?omni"),
    ("qwen_audio", r"qwen\d*(audio|asr)"),
    ("qwen3_5_vl", r"qwen35(moe)?vl"),
    ("qwen3_5", r"qwen35"),
    ("qwen3_vl", r"qwen3(moe)?vl"),
    ("qwen2_5_vl", r"qwen2?5?vl"),
    ("qwen3_moe", r"qwen3(moe|coder\w*\d+ba\d+b|\d+ba\d+b)"),
    ("qwen3", r"qwen3"),
    ("qwen2", r"qwen2|qwen15"),
    ("gemma4_vl", r"gemma4\w*vl"),
    ("gemma4", r"gemma4"),
    ("gemma3_vl", r"gemma3\w*vl|gemma3(4|12|27)b"),
    ("gemma3", r"gemma3"),
    ("gemma2", r"gemma2(?!b)"),
    ("gemma", r"gemma"),
    ("glm_4_5_vl", r"glm4\d?v|glmvl"),
    ("glm_4_5", r"glm4[567]|glm4moe"),
    ("glm_5", r"glm5|glmmoedsa"),
    ("glm", r"glm"),
    ("deepseek_v4", r"deepseekv4"),
    ("deepseek_v3_2", r"deepseekv32"),
    ("moonlight", r"moonlight"),
    ("kimi_vl", r"kimik25|kimi\w*vl"),
    ("kimi", r"kimi"),
    ("deepseek_v3", r"deepseekv3|deepseekr1"),
    ("deepseek_v2", r"deepseekv2"),
    ("nemotron_omni", r"nemotron\w*omni"),
    ("nemotron_diffusion", r"nemotron\w*diffusion"),
    ("nemotron_vl", r"nemotron\w*vl"),
    ("llama_nemotron", r"llama\w*nemotron"),
    ("nemotron_h", r"nvidianemotron|nemotronh|nemotronnano|nemotron3(?!8b|22b)"),
    ("nemotron", r"nemotron"),
    ("falcon_h1", r"falconh1"),
    ("exaone_4_5", r"exaone45"),
    ("exaone_moe", r"exaonemoe|kexaone"),
    ("exaone", r"exaone"),
    ("gpt_oss", r"gptoss"),
    ("mimo", r"(?<!megatron)mimo"),
    ("minimax", r"minimax"),
    ("ministral3", r"ministral3"),
    ("mistral", r"mi(ni)?stral|mixtral"),
    ("olmoe", r"olmoe"),
    ("step", r"step3|stepfun"),
    ("ernie_vl", r"ernie\w*vl"),
    ("ernie", r"ernie"),
    ("hunyuan", r"hyv3|hunyuan"),
    ("bailing", r"bailing"),
    ("sarvam", r"sarvam"),
    ("llada", r"llada"),
    ("flux", r"flux"),
    ("wan", r"^wan(\d|modelprovider)"),
    ("t5", r"^t5"),
    ("llava", r"llava"),
    ("llama4", r"llama4"),
    ("llama", r"llama"),
    ("mamba", r"mamba"),
)
#: Architecture settings of a plain decoder, which the checkpoint decides and rules read.
_PLAIN: Mapping[str, Any] = {
    "window_size": None,
    "softmax_type": "vanilla",
    "experimental_attention_variant": None,
    "multi_latent_attention": False,
    "hybrid_layer_pattern": None,
    "cp_comm_type": None,
}
_LATENT: Mapping[str, Any] = {**_PLAIN, "multi_latent_attention": True}
#: Family -> these settings in the host's provider; only families whose models all have the same values.
#: Source: the providers that the recipes of megatron-bridge 0.6.2 create from each family's published config.
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_moe", "glm_4_5", "olmoe"), _PLAIN),
    **dict.fromkeys(("moonlight", "deepseek_v2", "deepseek_v3"), _LATENT),
    "gpt_oss": {**_PLAIN, "window_size": [127, 0], "softmax_type": "learnable"},
    "glm_5": {**_LATENT, "experimental_attention_variant": "dsa", "cp_comm_type": "allgather"},
    "deepseek_v4": {**_LATENT, "experimental_attention_variant": "dsv4_hybrid"},
    "qwen3_next": {**_PLAIN, "experimental_attention_variant": "gated_delta_net"},
    "nemotron_h": {**_PLAIN, "hybrid_layer_pattern": "M-M*-"},
}
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_LAST_PART = re.compile(r"[/\\:]")
#: Model classes of several families.
_SHARED_CLASSES = frozenset({"mambamodelprovider", "llavamegatronmimoprovider"})


def family_named(text: str) -> str | None:
    """Return the family in the name of a model id, class or recipe, or None.

    The last part of a path is matched before the folders above it: `/data/qwen/gemma-2-2b` is Gemma 2.
    """
    last = _LAST_PART.split(text.rstrip("/\\"))[-1]
    return _family_in(last) or _family_in(text)


def family_of(config: RunConfig) -> Family | None:
    """Return the family of a run's model, or None.

    The model class comes first, because a checkpoint can be loaded as text or with its vision tower; then the model
    id, the recipe's name, and last a class of several families. The tokenizer is not used: it may be a folder.
    """
    for evidence, name_of in _evidence(config):
        name = name_of(str(evidence or ""))
        if name is not None:
            return Family(name=name, evidence=str(evidence))
    return None


def _evidence(config: RunConfig) -> Iterator[tuple[Any, Callable[[str], str | None]]]:
    """Yield (name, function that derives the family); the folders of the user's own file are not used."""
    model = section(config.values, "model")
    class_name = str(model.get("_target_") or "").rpartition(".")[2]
    is_shared = class_name.lower() in _SHARED_CLASSES
    yield None if is_shared else class_name, family_named
    yield model.get("hf_model_id"), family_named
    yield _LAST_PART.split(config.place)[-1], _family_in
    yield class_name, family_named


@lru_cache(maxsize=1024)  # rules ask for the family of a run dozens of times, also where there is none
def _family_in(text: str) -> str | None:
    plain = _SEPARATORS.sub("", text.lower())
    return next((name for name, pattern in _PATTERNS if re.search(pattern, plain)), None)
