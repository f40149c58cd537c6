"""Rules on kinds of attention and of positions: latent, sparse, windowed, with offsets, several rotary axes."""

from __future__ import annotations

from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, VALIDATE, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, Run

_FUSION = "model.apply_rope_fusion"


@rule("BP910", ERROR, noticed="validate(), or first step")
def latent_attention_setting_refused(run: Run) -> Found:
    """Multi-latent attention is combined with a setting that it refuses.

    Why: Crash in validate(): fused rotary embeddings want YaRN; or at the first packed step: hybrid context
        parallelism is asserted off.
    Bad: multi_latent_attention true, rope_type rope, apply_rope_fusion true.
    Good: multi_latent_attention true, rope_type yarn, or apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false, model.hybrid_context_parallel to false.
    Evidence: read in the source of megatron-core 0.19.2, which fills up narrower values for packed rows by itself.
    Source: PSB910; core/transformer/transformer_config.py:2193,2966; core/transformer/multi_latent_attention.py:683-686
    """
    if not run.of_model("multi_latent_attention"):
        return
    rope_type = run.stated("model.rope_type")
    if run.stated(_FUSION) and isinstance(rope_type, str) and rope_type != "yarn":
        why = "multi-latent attention fuses rotary embeddings with YaRN only"
        yield wrong(_FUSION, f"true with rope_type {rope_type}", "false, or rope_type yarn", to=False, because=why)
    if run.stated("model.hybrid_context_parallel"):
        why = "multi-latent attention asserts it off"
        yield wrong("model.hybrid_context_parallel", "true with multi-latent attention", "false", to=False, because=why)


@rule("BP911", ERROR, "PSB911; core/transformer/transformer_config.py:2837-2838", noticed=VALIDATE)
def sparse_attention_with_fused_rotary(run: Run) -> Found:
    """A model with DeepSeek sparse attention has fused rotary embeddings.

    Why: Crash in validate(): "RoPE fusion is not supported for DSAttention".
    Bad: experimental_attention_variant dsa, apply_rope_fusion true.
    Good: experimental_attention_variant dsa, apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if run.stated(_FUSION) and run.of_model("experimental_attention_variant") == "dsa":
        found = "true with sparse attention"
        yield wrong(_FUSION, found, "false", to=False, because="sparse attention refuses fused rotary embeddings")


@rule("BP912", WARNING, noticed="a warning, or first step")
def fused_rotary_with_several_axes(run: Run) -> Found:
    """Rotary embeddings over several axes (mRoPE) are asked for fused, which no kernel does.

    Why: Silent: the fused kernel for packed rows restarts one table of positions at every sequence, while these models
        have positions of their own for every token; some providers switch the setting off, others assert.
    Bad: Qwen3-VL, position_embedding_type mrope, apply_rope_fusion true.
    Good: Qwen3-VL, position_embedding_type mrope, apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false.
    Evidence: read in the source of 0.6.2 and megatron-core 0.19.2.
    Source: PSB912; core/models/common/embeddings/rope_utils.py:292-330;
        bridge/models/qwen_vl/modelling_qwen3_vl/rope.py:467-483
    """
    has_axes = bool(run.stated("model.mrope_section"))
    if run.stated(_FUSION) and (run.stated("model.position_embedding_type") == "mrope" or has_axes):
        found = "true with mrope"
        yield wrong(_FUSION, found, "false", to=False, because="the fused kernels know one axis of positions")


@rule("BP913", ADVICE, when=IS_PACKED, noticed=FIRST_STEP)
def windowed_or_offset_attention_packed(run: Run) -> Found:
    """Packed rows meet a sliding window or a learned softmax offset, which not every backend has for them.

    Why: Crash at the first step where none is left: "No dot product attention backend is available".
    Bad: gpt-oss (softmax_type learnable, window_size 127) packed, never tried on that GPU.
    Good: one step on one GPU of the same kind first; or a model without window and offset.
    Fix: Train one step on one GPU with the same image before the whole run; cuDNN 9.18 or newer for offsets.
    Evidence: read in the source of TransformerEngine 2.17.1; depends on the GPU and on cuDNN.
    Source: PSB913; transformer_engine/pytorch/attention/dot_product_attention/utils.py:977-1078
    """
    window, softmax = run.of_model("window_size"), run.of_model("softmax_type")
    if window is not None:
        yield wrong("model.window_size", f"{window}, packed", "tried on one GPU first")
    if softmax not in (None, "vanilla"):
        yield wrong("model.softmax_type", f"{softmax}, packed", "tried on one GPU first")


@rule("BP914", ADVICE, "PSB914; bridge/data/packing/gpt_sft.py:151-331", when=IS_PACKED)
def learned_positions_packed(run: Run) -> Found:
    """Packed rows meet learned absolute positions, which are right only where positions restart at every sequence.

    Why: Silent in a dataset of one's own whose position_ids run through the row; the host's own restart at 0.
    Bad: position_embedding_type learned_absolute, packing on, position_ids 0 to 15 over two sequences.
    Good: position_ids 0 to 8, then 0 to 6; or position_embedding_type rope.
    Fix: Restart position_ids at every sequence, as the host's dataset does.
    Evidence: read in the source of 0.6.2.
    """
    if run.stated("model.position_embedding_type") == "learned_absolute":
        allowed = "position_ids that restart at every sequence"
        yield wrong("model.position_embedding_type", "learned_absolute, packed", allowed)
