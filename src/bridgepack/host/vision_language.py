"""How the models for images and sound of Megatron-Bridge take packs of text: data, nothing is imported.

The table is that of 0.6.2; `HostRelease.text_packs` says what a later release does otherwise.

Packs of text reach a model through a forward step. `gpt_step` cuts a row for its context-parallel rank, gives tokens to
the first pipeline stage alone, and no loss mask to the model. `vlm_step` gives all of them, uncut, to every stage.

Source: the real forward step, collate function, model and loss of 0.6.2, executed with a stub for the language part and
none of the vision part (tests/contract/test_vision_language.py), Ministral 3 and Qwen2.5-VL also whole, in the training
loop (test_vision_training.py); what kernels do is read in TransformerEngine 2.17.1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from bridgepack.host.release import HostRelease

type Step = Literal["gpt_step", "vlm_step"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPacks:
    """What a model class does with packs of text under its `step`; a text that is empty says that it works."""

    model: str  #: model class, with its module below megatron.bridge.models
    providers: tuple[str, ...]  #: classes of the model section that make it
    named: str  #: pattern of its models' ids on the hub, in lower case without separators
    source: str  #: where that is in the source, from `bridge/models/` on
    step: Step = "gpt_step"  #: forward step with which most works
    refused: str = ""  #: how every pack ends
    context: str = ""  #: how a pack ends with context parallelism
    empty: str = ""  #: how a row ends that has a sequence of no tokens
    tensor: str = ""  #: how a pack ends with sequence parallelism
    kernels: str = ""  #: how a pack is known to end in attention kernels, read alone, on the first stage
    language_part: str = ""  #: architecture as which AutoBridge loads its language part alone


_CUT_TWICE = (
    "gpt_step cuts a row for its rank, and the model cuts that again: half of its tokens are lost; with vlm_step the "
    "model gets whole rows, which no GPU has tried"
)
_EMPTY_LIST = "torch.cat(): expected a non-empty list of Tensors"
_PRE_SHARDED = (
    "with gpt_step ValueError: Pre-sharded packed CP inputs require explicit rank-local 3D MRoPE position_ids; with "
    f"vlm_step {_EMPTY_LIST}, in rows with a tail"
)
_NOT_SCATTERED = (
    "embeddings are not split over tensor-parallel ranks: each computes the row as often as there are ranks"
)
_NO_IMAGES = "TypeError: LLaVAModel.forward() missing 1 required positional argument: 'images'"

TEXT_PACKS: tuple[TextPacks, ...] = (
    TextPacks(
        model="qwen_vl.modelling_qwen3_vl.model.Qwen3VLModel",
        providers=("Qwen3VLModelProvider", "Qwen3VLMoEModelProvider"),
        named=r"^qwen3vl",
        source="qwen_vl/modelling_qwen3_vl/model.py:572,835-848; qwen_vl/modelling_qwen3_vl/rope.py:316",
        step="vlm_step",
        context=_PRE_SHARDED,
        empty=_EMPTY_LIST,
        language_part="Qwen3ForCausalLM or Qwen3MoeForCausalLM",
    ),
    TextPacks(
        model="qwen_vl.modelling_qwen3_vl.model.Qwen3VLModel",
        providers=("Qwen35VLModelProvider", "Qwen35VLMoEModelProvider"),
        named=r"^qwen35",
        source="qwen_vl/modelling_qwen3_vl/model.py:572,835-848; qwen_vl/modelling_qwen3_vl/rope.py:316",
        step="vlm_step",
        context=_PRE_SHARDED,
        empty=_EMPTY_LIST,
        language_part="Qwen3_5ForCausalLM or Qwen3_5MoeForCausalLM",
    ),
    TextPacks(
        model="qwen_vl.modeling_qwen25_vl.Qwen25VLModel",
        providers=("Qwen25VLModelProvider",),
        named=r"^qwen25vl",
        source="qwen_vl/modeling_qwen25_vl.py:225; training/utils/packed_seq_utils.py:177-179",
        step="vlm_step",
        context="with gpt_step ValueError: Packed sequence metadata exceeds the THD tensor length; with vlm_step "
        "each rank computes whole rows",
        empty="ValueError: MCore THD position preparation requires non-empty packed rows",
        language_part="Qwen2ForCausalLM",
    ),
    TextPacks(
        model="glm_vl.modeling_glm_45v.GLM45VModel",
        providers=("GLM45VModelProvider",),
        named=r"^glm4\d*v",
        source="glm_vl/modeling_glm_45v.py:244",
        refused="ValueError: Packed GLM-VL batches require mm_token_type_ids",
        language_part="Glm4MoeForCausalLM",
    ),
    TextPacks(
        model="gemma_vl.modeling_gemma3_vl.Gemma3VLModel",
        providers=("Gemma3VLModelProvider",),
        named=r"^gemma3(n?4b|12b|27b)",
        source="gemma_vl/modeling_gemma3_vl.py:168,204; recipes/gemma3_vl/h100/gemma3_vl.py:115; "
        "TE/common/fused_attn/fused_attn.cpp:394-398",
        step="vlm_step",
        refused="no attention kernel takes the class's attention bias over packed rows",
        language_part="Gemma3ForCausalLM",
    ),
    TextPacks(
        model="gemma_vl.modeling_gemma4_vl.Gemma4VLModel",
        providers=("Gemma4VLModelProvider", "Gemma4DenseVLProvider"),
        named=r"^gemma4",
        source="gemma_vl/modeling_gemma4_vl.py:313,315,343; training/losses.py:62-64; "
        "TE/dot_product_attention/utils.py:1731-1741",
        step="vlm_step",
        context=_CUT_TWICE,
        kernels="RuntimeError in the layers with heads of 512: unfused attention takes the class's mask of the whole "
        "row for one of each sequence",
        language_part="Gemma4ForCausalLM",
    ),
    TextPacks(
        model="ministral3.modeling_ministral3.Ministral3Model",
        providers=("Ministral3ModelProvider",),
        named=r"^ministral3",
        # On two ranks on CPU, vlm_step trains ten steps to the losses of one rank.
        source="ministral3/modeling_ministral3.py:256,286; training/losses.py:62-64",
        step="vlm_step",
        context=_CUT_TWICE,
    ),
    TextPacks(
        model="kimi_vl.modeling_kimi_k25_vl.KimiK25VLModel",
        providers=("KimiK25VLModelProvider",),
        named=r"^kimi(k25|vl)",
        source="kimi_vl/modeling_kimi_k25_vl.py:471-481",
        context="the model cuts a row for its rank without regard to sequences",
    ),
    TextPacks(
        model="minimax_m3.modeling_minimax_m3_vl.MiniMaxM3VLModel",
        providers=("MiniMaxM3VLModelProvider",),
        named=r"^minimaxm3",
        source="minimax_m3/modeling_minimax_m3_vl.py:553",
        context=_CUT_TWICE,
    ),
    TextPacks(
        model="exaone.exaone45.modelling_exaone45.model.Exaone45Model",
        providers=("Exaone45ModelProvider",),
        named=r"^exaone45",
        source="exaone/exaone45/modelling_exaone45/model.py:407-411",
        context="TypeError: split_data_cp_rank() takes from 3 to 4 positional arguments but 5 were given",
        language_part="Exaone4ForCausalLM",
    ),
    TextPacks(
        model="stepfun.modelling_step37.model.Step37Model",
        providers=("Step37ModelProvider",),
        named=r"^step37",
        source="stepfun/modelling_step37/model.py:137,325",
        tensor=_NOT_SCATTERED,
        language_part="Step3p5ForCausalLM",
    ),
    TextPacks(
        model="qwen_audio.modeling_qwen2_audio.Qwen2AudioModel",
        providers=("Qwen2AudioModelProvider",),
        named=r"^qwen2audio",
        source="qwen_audio/modeling_qwen2_audio.py:282",
        tensor=_NOT_SCATTERED,
        language_part="Qwen2ForCausalLM",
    ),
    TextPacks(
        model="qwen_omni.modeling_qwen3_omni.model.Qwen3OmniModel",
        providers=("Qwen3OmniModelProvider",),
        named=r"^qwen3omni",
        source="qwen_omni/modeling_qwen3_omni/thinker_model.py:384",
        refused="NotImplementedError: Qwen3-Omni packed sequence support is not implemented yet",
        language_part="Qwen3MoeForCausalLM",
    ),
    TextPacks(
        model="qwen_omni.modeling_qwen25_omni.model.Qwen25OmniModel",
        providers=("Qwen25OmniModelProvider",),
        named=r"^qwen25omni",
        source="qwen_omni/modeling_qwen25_omni/thinker_model.py:228",
        refused="NotImplementedError: packed_seq_params is not supported",
        language_part="Qwen2ForCausalLM",
    ),
    TextPacks(
        model="qwen3_asr.modeling_qwen3_asr.model.Qwen3ASRModel",
        providers=("Qwen3ASRModelProvider",),
        named=r"^qwen3asr",
        source="qwen3_asr/modeling_qwen3_asr/thinker_model.py:213",
        refused="NotImplementedError: packed_seq_params is not supported",
        language_part="Qwen3ForCausalLM",
    ),
    TextPacks(
        model="ernie_vl.modeling_ernie45_vl.model.Ernie45VLModel",
        providers=("Ernie45VLModelProvider",),
        named=r"^ernie45vl",
        source="ernie_vl/modeling_ernie45_vl/model.py:524",
        refused="TypeError: 'NoneType' object is not subscriptable, for text has no mm_token_type_ids",
    ),
    TextPacks(
        model="nemotron_vl.modeling_nemotron_vl.NemotronVLModel",
        providers=("NemotronVLModelProvider",),
        named=r"nemotron\w*vl",
        source="nemotron_vl/modeling_nemotron_vl.py:88; core/models/multimodal/llava_model.py:930-936",
        refused=_NO_IMAGES,
    ),
    TextPacks(
        model="nemotron_omni.modeling_nemotron_omni.NemotronOmniModel",
        providers=("NemotronOmniModelProvider",),
        named=r"nemotron\w*omni",
        source="nemotron_vl/modeling_nemotron_vl.py:88; core/models/multimodal/llava_model.py:930-936",
        refused=_NO_IMAGES,
    ),
    TextPacks(
        model="nemotron_omni.modeling_nemotron_omni_llava.NemotronOmniLlavaModel",  # of 0.7, the class of 0.6
        providers=("NemotronOmniLlavaModelProvider",),
        named=r"^$",
        source="nemotron_omni/modeling_nemotron_omni_llava.py; core/models/multimodal/llava_model.py",
        refused="forward() got an unexpected keyword argument 'padding_mask'; with vlm_step it misses the argument "
        "images",
    ),
    TextPacks(
        model="megatron_mimo.megatron_mimo_provider.MegatronMIMOProvider",
        providers=("MegatronMIMOProvider", "LlavaMegatronMIMOProvider"),
        named=r"^$",
        source="core/models/mimo/model/base.py:399-408",
        refused="TypeError: MimoModel.forward() got an unexpected keyword argument 'packed_seq_params'",
    ),
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
#: Whose models bear these names; a folder, or a copy by others, may hold the language part alone.
_PUBLISHERS = frozenset(
    {
        *("qwen", "zai-org", "google", "mistralai", "moonshotai", "minimaxai", "lgai-exaone", "stepfun-ai"),
        *("baidu", "nvidia"),
    }
)


@cache
def text_packs_in(release: HostRelease) -> tuple[TextPacks, ...]:
    """Return the table of a release."""
    changes: Mapping[str, Mapping[str, Any]] = release.text_packs
    return tuple(replace(facts, **changes.get(facts.providers[0], {})) for facts in TEXT_PACKS)


def text_packs_of(provider: str, release: HostRelease) -> TextPacks | None:
    """Return the facts of a class of the model section, without its module, or None if it has no vision or sound."""
    return next((facts for facts in text_packs_in(release) if provider in facts.providers), None)


def text_packs_by_id(hub_id: str, release: HostRelease) -> TextPacks | None:
    """Return the facts of a publisher's model by its id on the hub, `Qwen/Qwen3-VL-4B-Instruct`, or None."""
    publisher, _, name = hub_id.lower().rpartition("/")
    plain = _SEPARATORS.sub("", name)
    matches = (facts for facts in text_packs_in(release) if re.search(facts.named, plain))
    return next(matches, None) if publisher in _PUBLISHERS else None
