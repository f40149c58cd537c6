"""Megatron-Bridge's forward step for a model, the argument of `finetune(config, forward_step)`."""

from collections.abc import Mapping
from typing import Any

from bridgepack.bridge.container import config_of_container, is_container
from bridgepack.bridge.imports import import_host
from bridgepack.bridge.plain import field_names
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.config.arguments import check_arguments
from bridgepack.config.load import load_recipe
from bridgepack.host import release_for
from bridgepack.host.vision_language import text_packs_of
from bridgepack.rules.judging.families import family_of
from bridgepack.rules.judging.subject import TEXT_DATASETS

#: Modules below the host's package.
_TEXT = "training.gpt_step"
_VISION = "training.vlm_step"
#: Family -> its own step over text.
_TEXT_STEPS: Mapping[str, str] = {"deepseek_v4": "models.deepseek.deepseek_v4_step"}
#: Family -> its own step over images, video and sound; vlm_step for others.
#: Source: megatron/bridge of 0.6.2, the modules that define `forward_step`, by the keys of the batches that they read.
_OTHER_STEPS: Mapping[str, str] = {
    "qwen3_vl": "models.qwen_vl.qwen3_vl_step",
    "qwen3_5_vl": "models.qwen_vl.qwen3_vl_step",
    "qwen3_omni": "models.qwen_omni.qwen3_omni_step",
    "qwen_audio": "training.audio_lm_step",
    "nemotron_omni": "training.nemotron_omni_step",
    "nemotron_vl": "training.llava_step",
    "step": "models.stepfun.step37_flickr8k_step",
}
#: Fields that identify a model with vision.
_VISION_FIELDS = frozenset({"vision_config", "freeze_vision_model", "vision_model_type", "image_token_id"})


@check_arguments
def forward_step_for(target: Any) -> Any:
    """Return the forward step of Megatron-Bridge for a ConfigContainer, or for a recipe as `build` takes it.

    Example: `finetune(config, forward_step_for(config))`.

    Raises:
        ConfigError: the recipe's base cannot be loaded here, or Megatron-Bridge cannot be imported.
    """
    config = target if is_container(target) else to_bridge(load_recipe(target))
    return import_host(_step_of(config)).forward_step


def _step_of(config: Any) -> str:
    settings = config_of_container(config, place="")
    family = family_of(settings)
    name = family.name if family is not None else ""
    if type(config.dataset).__name__ in TEXT_DATASETS:
        facts = text_packs_of(type(config.model).__name__, release_for(settings.bridge_version))
        return _VISION if facts is not None and facts.step == "vlm_step" else _TEXT_STEPS.get(name, _TEXT)
    if name in _OTHER_STEPS:
        return _OTHER_STEPS[name]
    return _VISION if _VISION_FIELDS & field_names(config.model) else _TEXT
