"""Models of the hub find their class by its id, and text models find none."""

import pytest

from bridgepack.host import RELEASES, TARGET, V06, V07
from bridgepack.host.vision_language import TEXT_PACKS, text_packs_by_id, text_packs_in, text_packs_of


@pytest.mark.parametrize(
    ("hub_id", "provider"),
    [
        ("Qwen/Qwen3-VL-4B-Thinking", "Qwen3VLModelProvider"),
        ("Qwen/Qwen3.5-14B-Base", "Qwen35VLModelProvider"),
        ("Qwen/Qwen2.5-VL-32B-Instruct-AWQ", "Qwen25VLModelProvider"),
        ("zai-org/GLM-4.6V", "GLM45VModelProvider"),
        ("google/gemma-3-12b-pt", "Gemma3VLModelProvider"),
        ("google/gemma-4-31B-it", "Gemma4VLModelProvider"),
        ("mistralai/Ministral-3-8B-Base-2512", "Ministral3ModelProvider"),
        ("moonshotai/Kimi-K2.5", "KimiK25VLModelProvider"),
        ("MiniMaxAI/MiniMax-M3", "MiniMaxM3VLModelProvider"),
        ("LGAI-EXAONE/EXAONE-4.5-33B-FP8", "Exaone45ModelProvider"),
        ("stepfun-ai/Step-3.7-Flash", "Step37ModelProvider"),
        ("Qwen/Qwen2-Audio-7B", "Qwen2AudioModelProvider"),
        ("Qwen/Qwen3-Omni-30B-A3B-Captioner", "Qwen3OmniModelProvider"),
        ("Qwen/Qwen2.5-Omni-7B", "Qwen25OmniModelProvider"),
        ("Qwen/Qwen3-ASR-1.7B", "Qwen3ASRModelProvider"),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "Ernie45VLModelProvider"),
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16", "NemotronVLModelProvider"),
        ("nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning", "NemotronOmniModelProvider"),
    ],
)
def test_class_of_a_model_of_the_hub(hub_id: str, provider: str) -> None:
    found = text_packs_by_id(hub_id, TARGET)

    assert found is not None
    assert provider in found.providers


@pytest.mark.parametrize(
    "hub_id",
    [
        *("Qwen/Qwen3-8B", "Qwen/Qwen3-Next-80B-A3B-Instruct", "google/gemma-3-1b-pt", "zai-org/GLM-4.5-Air"),
        *("MiniMaxAI/MiniMax-M2", "moonshotai/Kimi-K2-Instruct", "moonshotai/Moonlight-16B-A3B"),
        *("mistralai/Mistral-7B-v0.3", "LGAI-EXAONE/EXAONE-4.0-1.2B", "stepfun-ai/Step-3.5-Flash"),
        *("checkpoints/qwen3.5-27b-language-part", "/models/Qwen3-VL-8B", "Qwen3-VL-8B-Instruct"),
        *("baidu/ERNIE-4.5-21B-A3B-PT", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "XiaomiMiMo/MiMo-7B-SFT"),
    ],
)
def test_text_models_are_not_in_the_table(hub_id: str) -> None:
    assert text_packs_by_id(hub_id, TARGET) is None


def test_id_and_class_of_known_models_agree() -> None:
    num_checked = 0
    for release in RELEASES:
        for name in release.facts.models:
            model = release.facts.model_by_name(name)
            assert model is not None
            of_class = text_packs_of(str(model["_target_"]).rpartition(".")[2], release)
            assert text_packs_by_id(name, release) == of_class, name
            num_checked += 1
    assert num_checked > 100


def test_every_class_is_named_once() -> None:
    providers = [name for facts in TEXT_PACKS for name in facts.providers]
    assert len(providers) == len(set(providers))


def test_a_release_says_what_its_classes_do_otherwise() -> None:
    before, after = (text_packs_of("NemotronOmniModelProvider", release) for release in (V06, V07))
    assert before is not None
    assert after is not None
    assert (before.refused != "", after.refused, after.step) == (True, "", "vlm_step")
    assert text_packs_in(V06) == TEXT_PACKS
    named = {facts.providers[0] for facts in TEXT_PACKS}
    assert set(V07.text_packs) <= named
    kept = [facts for facts in text_packs_in(V07) if facts.providers[0] not in V07.text_packs]
    assert kept == [facts for facts in TEXT_PACKS if facts.providers[0] not in V07.text_packs]
