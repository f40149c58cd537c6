"""Rules on attention and rotary embeddings over packs: backends, kinds and masks."""

import math

from packaging.version import Version

from bridgepack.host.modules import DELTA_NETS
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.environment import ENGINE
from bridgepack.rules.judging.rule import ADVICE, ERROR, VALIDATE, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import (
    attention_backend,
    backend_takes_effect,
    pads_between_sequences,
    splits_context,
    switches_on,
    truths,
    uses_engine_attention,
)

_BACKEND = "model.attention_backend"
#: Distributions of FlashAttention 3.
_FLASH_ATTENTION_3 = frozenset({"flash-attn-3", "flash-attn-hopper", "flash-attn-interface"})


@fixable_rule("BP701", ERROR, when=(IS_PACKED, uses_engine_attention), noticed="first step")
def no_backend_for_packed_attention(run: Run) -> Found:
    """The attention backend does not support packs.

    Why: Crash at the first step: `local` refuses packs; `unfused` supports neither padding between sequences nor
        context parallelism, and before TransformerEngine 2.12 no packs at all.
    Bad: enable_offline_packing true, attention_backend local. Good: attention_backend auto or fused.
    Fix: Set {model.attention_backend} to auto, which is AttnBackend.auto in Python, or do not set it.
    Evidence: read in megatron-core 0.19.2 and TransformerEngine 2.10 to 2.18; packs without padding at context
        parallelism 1 work with `unfused` since 2.12.
    Source: PSB701; bridge/models/gpt_provider.py:277; core/transformer/dot_product_attention.py:153;
        TE/dot_product_attention/utils.py:990,1076
    """
    backend = attention_backend(run)
    is_hybrid_local = backend == "local" and run.class_name("model") == "HybridModelProvider"
    if not is_hybrid_local and not (backend in ("local", "unfused") and backend_takes_effect(run)):
        return
    is_old = run.versions[ENGINE] < Version("2.12")
    if backend == "local" or is_old or splits_context(run) or pads_between_sequences(run):
        allowed_values = "auto or fused, or flash if no sequence is padded"
        yield wrong(_BACKEND, str(backend), allowed_values, to=None)


def has_flash_attention_3(run: Run) -> bool:
    """Return whether FlashAttention 3 is known to be installed, and TransformerEngine takes it."""
    versions = run.environment.versions if run.environment is not None else {}
    version = run.stated_value("model.flash_attention_version")
    takes_third = version in (None, 3) and run.versions[ENGINE] >= Version("2.16")
    return takes_third and bool(_FLASH_ATTENTION_3 & set(versions))


@fixable_rule(
    "BP702",
    WARNING,
    when=(IS_PACKED, uses_engine_attention),
    evidence="read in TransformerEngine 2.14 to 2.18",
)
def flash_attention_over_padded_sequences(run: Run) -> Found:
    """The attention backend is flash with padded sequences, which FlashAttention 2 and 4 refuse.

    Why: Crash at the first step, "No dot product attention backend is available", unless FlashAttention 3 is installed
        and TransformerEngine is 2.16 or newer. `flash` is the default of hybrid and Gemma providers.
    Bad: pad_seq_to_mult 4, attention_backend flash, no FlashAttention 3. Good: attention_backend auto or fused.
    Fix: Set {model.attention_backend} to auto, which is AttnBackend.auto in Python. On Ampere GPUs, which have no fused
        kernel for packs, use context parallelism 1 with {dataset.offline_packing_specs.pad_seq_to_mult} 1. Noticed:
        first step.
    Source: PSB702; TE/dot_product_attention/utils.py:975-990; bridge/models/hybrid/hybrid_provider.py:144
    """
    if attention_backend(run) != "flash" or not backend_takes_effect(run) or not pads_between_sequences(run):
        return
    versions = run.environment.versions if run.environment is not None else {}
    if not has_flash_attention_3(run):
        actual = f"flash, with padded sequences and {'no' if versions else 'an unknown state of'} FlashAttention 3"
        allowed_values = (
            "auto or fused with padded sequences; flash with FlashAttention 3 and TransformerEngine 2.16 or newer"
        )
        yield wrong(_BACKEND, actual, allowed_values, to=None, because="the fused kernel supports padded sequences")


@fixable_rule(
    "BP717",
    ERROR,
    "PSB717, PSB907; core/ssm/gated_delta_net/gdn.py:97",
    when=IS_PACKED,
    noticed="first step",
)
def deterministic_gated_delta_net(run: Run) -> Found:
    """Deterministic mode is on for a model with gated delta net layers over packs.

    Why: Crash at the first step: "Packed sequence does not support deterministic mode."
    Bad: experimental_attention_variant gated_delta_net, deterministic_mode true, packing on.
    Good: deterministic_mode false.
    Fix: Set {model.deterministic_mode} to false, or train unpacked. Evidence: read in megatron-core 0.19.2.
    """
    path = "model.deterministic_mode"
    if run.stated_value(path) and run.model_setting("experimental_attention_variant") in DELTA_NETS:
        yield wrong(path, "true with gated delta net", "false with packs", to=False)


@fixable_rule(
    "BP718",
    WARNING,
    "PSB718; bridge/training/gpt_step.py:120-124,200",
    evidence="read in megatron-bridge 0.6.2",
)
def attention_mask_of_the_dataset_ignored(run: Run) -> Found:
    """The dataset returns attention masks, but attention over packs ignores them.

    Why: Silent: attention over packs uses cu_seqlens only, so the mask has no effect. The masks of the host's own
        datasets equal cu_seqlens; a mask of your own dataset may differ.
    Bad: packing on, skip_getting_attention_mask_from_dataset false. Good: true, or not set.
    Fix: Set {dataset.skip_getting_attention_mask_from_dataset} to true, or train unpacked if you need the mask.
    """
    path = "dataset.skip_getting_attention_mask_from_dataset"
    if run.is_packed and run.stated_value(path) is False:
        because = "attention over packs uses cu_seqlens only"
        yield wrong(path, "false", "true with packs", to=True, because=because)


@fixable_rule("BP721", ERROR, noticed="first step", evidence="read in TransformerEngine 2.17.1 and 2.18")
def fp8_attention_over_packs(run: Run) -> Found:
    """Attention runs in FP8 over packs with context parallelism.

    Why: Crash at the first step, "No dot product attention backend is available": no kernel supports FP8 attention
        over packs with context parallelism; with MXFP8 none does even without it.
    Bad: fp8 hybrid, fp8_dot_product_attention true, CP 2, packing on. Good: fp8_dot_product_attention false.
    Fix: Set {model.fp8_dot_product_attention} and {model.fp8_multi_head_attention} to false; matrix products stay in
        FP8.
    Source: PSB721, PSB702; TE/dot_product_attention/utils.py, context parallelism filter
    """
    flags = ("fp8_dot_product_attention", "fp8_multi_head_attention")
    switched_on = switches_on(run, *(f"{section}.{flag}" for section in ("model", "mixed_precision") for flag in flags))
    if not run.is_packed or not switched_on or run.number_format not in ("fp8", "mxfp8"):
        return
    if splits_context(run) or run.number_format == "mxfp8":
        actual = f"true, {run.number_format}, context parallelism {run.context_parallel_size}"
        fix = say("Set {paths} to false; matrix products stay in FP8.", paths=setting(*switched_on))
        for path in switched_on:
            yield wrong(path, actual, "false with packs", to=False, fix=fix)


@rule("BP723", ADVICE, when=PACKS_OFFLINE, versions={ENGINE: "<2.18"})
def padding_looked_for_on_every_layer(run: Run) -> Found:
    """Every attention layer compares the boundary tensors on the GPU to detect padded sequences.

    Why: Slow: each comparison waits for the GPU, once per layer and micro batch.
    Bad: pad_seq_to_mult 4, TransformerEngine 2.17. Good: pad_seq_to_mult 1, or TransformerEngine 2.18.
    Fix: Install TransformerEngine 2.18 or newer, which decides without waiting.
    Evidence: read in the source; TransformerEngine #3487.
    Source: PSB723; TE/dot_product_attention/dot_product_attention.py:1562-1572
    """
    if run.pad_seq_to_mult > 1 and uses_engine_attention(run):
        actual = f"{run.pad_seq_to_mult} with TransformerEngine {run.versions[ENGINE]}"
        yield wrong(f"{SPECS}.pad_seq_to_mult", actual, "any with TransformerEngine 2.18 or newer")


@rule("BP729", ADVICE, "PSB701; core/models/common/language_module/language_module.py:123-145")
def attention_backend_is_plain_text(run: Run) -> Found:
    """The attention backend is a string, which the host ignores because it compares it with enum members.

    Why: Silent: the chosen backend is not forced; TransformerEngine chooses as if nothing were set.
    Bad: model.attention_backend "flash" as a string. Good: model.attention_backend AttnBackend.flash, or nothing.
    Fix: Set the enum member in Python, AttnBackend.flash, or do not set it.
    Evidence: read in megatron-core 0.19.2 and megatron-bridge 0.6.2, which converts strings of other fields but not of
        this one; shipped recipes of Ministral 3 set a string.
    """
    backend = attention_backend(run) if run.is_stated(_BACKEND) else None
    if backend not in (None, "auto") and not backend_takes_effect(run):
        yield wrong(_BACKEND, repr(backend), "a member of AttnBackend, or nothing")


_FUSION = "model.apply_rope_fusion"


@fixable_rule("BP910", ERROR, "PSB910; core/transformer/transformer_config.py:2193,2966", noticed=VALIDATE)
def latent_attention_setting_refused(run: Run) -> Found:
    """Multi-latent attention is on with fused rotary embeddings but without YaRN.

    Why: Crash in validate(): fused rotary embeddings need YaRN.
    Bad: multi_latent_attention true, rope_type rope, apply_rope_fusion true.
    Good: multi_latent_attention true, rope_type yarn, or apply_rope_fusion false.
    Fix: Set {model.apply_rope_fusion} to false. Evidence: read in megatron-core 0.19.2, which pads narrower values
        for packs itself.
    """
    if not run.model_setting("multi_latent_attention"):
        return
    rope_type = run.stated_value("model.rope_type")
    if run.stated_value(_FUSION) and isinstance(rope_type, str) and rope_type != "yarn":
        why = "multi-latent attention fuses rotary embeddings with YaRN only"
        yield wrong(_FUSION, f"true with rope_type {rope_type}", "false, or rope_type yarn", to=False, because=why)


@fixable_rule("BP911", ERROR, "PSB911; core/transformer/transformer_config.py:2837-2838", noticed=VALIDATE)
def sparse_attention_with_fused_rotary(run: Run) -> Found:
    """A model with DeepSeek sparse attention uses fused rotary embeddings.

    Why: Crash in validate(): "RoPE fusion is not supported for DSAttention".
    Bad: experimental_attention_variant dsa, apply_rope_fusion true. Good: apply_rope_fusion false.
    Fix: Set {model.apply_rope_fusion} to false. Evidence: read in megatron-core 0.19.2.
    """
    if run.stated_value(_FUSION) and run.model_setting("experimental_attention_variant") == "dsa":
        why = "sparse attention refuses fused rotary embeddings"
        yield wrong(_FUSION, "true with sparse attention", "false", to=False, because=why)


@fixable_rule("BP912", WARNING, noticed="a warning, or first step", evidence="read in 0.6.2 and megatron-core 0.19.2")
def fused_rotary_with_several_axes(run: Run) -> Found:
    """Rotary embeddings over several axes (mRoPE) are set to fused, which no kernel supports.

    Why: Silent: the fused kernel for packs restarts one position table at every sequence, but these models set
        several positions for every token. Some providers turn the setting off, others fail an assertion.
    Bad: Qwen3-VL, position_embedding_type mrope, apply_rope_fusion true. Good: apply_rope_fusion false.
    Fix: Set {model.apply_rope_fusion} to false.
    Source: PSB912; core/models/common/embeddings/rope_utils.py:292-330;
        bridge/models/qwen_vl/modelling_qwen3_vl/rope.py:467-483
    """
    has_axes = run.stated_value("model.position_embedding_type") == "mrope" or bool(
        run.stated_value("model.mrope_section")
    )
    if run.stated_value(_FUSION) and has_axes:
        yield wrong(_FUSION, "true with mrope", "false", to=False, because="fused kernels have one axis of positions")


@rule("BP913", ADVICE, "PSB913; TE/dot_product_attention/utils.py:977-1078", when=IS_PACKED, noticed="first step")
def windowed_or_offset_attention_packed(run: Run) -> Found:
    """The model has a sliding window or a learned softmax offset, which not every backend supports with packs.

    Why: Crash at the first step if no backend supports it: "No dot product attention backend is available".
    Bad: gpt-oss (softmax_type learnable, window_size 127) packed, not tried on that GPU. Good: one step there first.
    Fix: Train one step on one GPU with the same image before the run; softmax offsets need cuDNN 9.18 or newer.
    Evidence: read in TransformerEngine 2.17.1; depends on the GPU and on cuDNN.
    """
    window, softmax = run.model_setting("window_size"), run.model_setting("softmax_type")
    if window is not None:
        yield wrong("model.window_size", f"{window}, packed", "tried on one GPU first")
    if softmax not in (None, "vanilla"):
        yield wrong("model.softmax_type", f"{softmax}, packed", "tried on one GPU first")


@rule("BP914", ADVICE, "PSB914; bridge/data/packing/gpt_sft.py:151-331", when=IS_PACKED, evidence="read in 0.6.2")
def learned_positions_packed(run: Run) -> Found:
    """The model has learned absolute positions, which must restart at every sequence of a pack.

    Why: Silent if your own dataset's position_ids do not restart; those of the host's datasets restart at 0.
    Bad: position_embedding_type learned_absolute, packing on, position_ids 0 to 15.
    Good: position_ids 0 to 8, then 0 to 6; or position_embedding_type rope.
    Fix: Restart position_ids at every sequence, as the host's dataset does.
    """
    path, kind = "model.position_embedding_type", "learned_absolute"
    if run.stated_value(path) == kind:
        yield wrong(path, f"{kind}, packed", "position_ids that restart at every sequence")


#: Suffixes of model classes that do not call GPTModelProvider.provide(), which turns fusion off.
_OWN_CONSTRUCTION = ("VLModelProvider", "OmniModelProvider", "OmniModalityProvider", "AudioModelProvider")


@fixable_rule(
    "BP710",
    ERROR,
    "PSB710; core/transformer/attention.py:1361-1384",
    evidence="read in megatron-core 0.19.2",
)
def single_fused_rotary_embedding(run: Run) -> Found:
    """Rotary embeddings of queries and keys are fused into one kernel, which does not support packs.

    Why: Crash at the first step: "fused_single_qkv_rope requested but not available/supported for the config."
    Bad: fused_single_qkv_rope true, packing on. Good: fused_single_qkv_rope false, apply_rope_fusion true.
    Fix: Set {model.fused_single_qkv_rope} to false; {model.apply_rope_fusion} keeps the other fused kernel. Noticed:
        first step.
    """
    path = "model.fused_single_qkv_rope"
    if run.is_packed and run.stated_value(path) is True and not run.stated_value("model.multi_latent_attention"):
        why = "the kernel does not support packs"
        yield wrong(path, "true with packs", "false with packs", to=False, because=why)


@fixable_rule(
    "BP711",
    WARNING,
    when=IS_PACKED,
    evidence="read in megatron-core 0.19.2; which classes are affected is inferred",
)
def fused_rotary_embedding_loses_yarn_scale(run: Run) -> Found:
    """The fused rotary embedding of packs omits YaRN's attention scale.

    Why: Silent: queries and keys are too small by that factor, in packs only. GPTModelProvider turns fusion off
        itself; model classes that build their own language model do not.
    Bad: a vision-language provider, position_embedding_type yarn, factor 32, apply_rope_fusion true. Good: no fusion.
    Fix: Set {model.apply_rope_fusion} to false.
    Source: PSB711; core/models/common/embeddings/rope_utils.py:318-327; bridge/utils/fusions.py:84-92
    """
    if run.stated_value(_FUSION) is not True or run.stated_value("model.position_embedding_type") != "yarn":
        return
    kind, scale = run.class_name("model") or "", yarn_scale(run)
    if scale != 1.0 and kind.endswith(_OWN_CONSTRUCTION):
        actual, why = f"true in {kind}, where YaRN scales by {scale:.3f}", "only the unfused kernel applies the scale"
        yield wrong(_FUSION, actual, "false with YaRN over packs", to=False, because=why)


def yarn_scale(run: Run) -> float:
    """Return YaRN's scale of queries and keys; 1.0 without scaling.

    Source: megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py:252-272.
    """
    factor = run.number_or_none("model.yarn_rotary_scaling_factor") or 1.0
    parts = [run.number_or_none(f"model.yarn_{name}") for name in ("mscale", "mscale_all_dim")]
    scales = [1.0 if factor <= 1 else 0.1 * part * math.log(factor) + 1.0 for part in parts if part is not None]
    if len(scales) < len(parts):
        return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
    return scales[0] / scales[1]


@rule("BP712", ADVICE, "PSB712; core/models/common/embeddings/rope_utils.py:206,250-268", when=IS_PACKED)
def rotary_embedding_sequence_by_sequence(run: Run) -> Found:
    """Rotary embeddings of packs are computed in a loop over sequences.

    Why: Slow: without fusion every layer copies the boundaries from the GPU and starts kernels for each sequence.
    Bad: apply_rope_fusion false, 40 short sequences in a pack. Good: apply_rope_fusion true.
    Fix: Set {model.apply_rope_fusion} to true if the model has plain rotary embeddings.
    Evidence: read in megatron-core 0.19.2; SkyRL #274.
    """
    if run.stated_value(_FUSION) is False and run.stated_value("model.position_embedding_type") == "rope":
        yield wrong(_FUSION, "false with packs", "true, which computes all sequences at once")


@rule("BP713", ADVICE, "PSB713; core/models/common/embeddings/rope_utils.py:225-246", when=PACKS_OFFLINE)
def positions_run_on_through_the_pack(run: Run) -> Found:
    """The longest sequence is as long as a pack, so rotary positions do not restart at any sequence.

    Why: Silent: with pad_cu_seqlens and without fusion, positions count from the start of the pack. Plain rotary
        embeddings are relative, so nothing changes; anything that depends on absolute positions does.
    Bad: pad_cu_seqlens true, apply_rope_fusion false, a sequence of 4096 in packs of 4096.
    Good: apply_rope_fusion true.
    Fix: Set {model.apply_rope_fusion} to true, or {dataset.offline_packing_specs.max_single_sequence_length} below
        {dataset.offline_packing_specs.packed_sequence_size}.
    Evidence: read in megatron-core 0.19.2; the effect is inferred.
    """
    if run.stated_value(_FUSION) is not False or not run.flag(f"{SPECS}.pad_cu_seqlens"):
        return
    for truth in truths(run):
        if truth.max_runtime_length == run.packed_sequence_size:
            actual = f"false; longest sequence of {truth.split}: {truth.max_runtime_length} tokens, as long as a pack"
            yield wrong(_FUSION, actual, "true, or sequences shorter than a pack")
