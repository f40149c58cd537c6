"""Rules on kinds of attention and of positions: latent, sparse, windowed, with offsets, several rotary axes."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.kernel_facts import stated
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject

_FUSION = "model.apply_rope_fusion"


@rule(
    "BP910",
    ERROR,
    "PSB910; megatron/core/transformer/transformer_config.py:2193,2966; "
    "megatron/core/transformer/multi_latent_attention.py:683-686",
)
def latent_attention_setting_refused(subject: RunSubject) -> Iterator[Violation]:
    """Multi-latent attention is combined with a setting that it refuses.

    Why: Crash in validate(): fused rotary embeddings want YaRN; or at the first packed step: hybrid context
        parallelism is asserted off.
    Bad: multi_latent_attention true, rope_type rope, apply_rope_fusion true.
    Good: multi_latent_attention true, rope_type yarn, or apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false, model.hybrid_context_parallel to false.
    Noticed: validate(), or first step.
    Evidence: read in the source of megatron-core 0.19.2, which fills up narrower values for packed rows by itself.
    """
    if not subject.of_model("multi_latent_attention"):
        return
    rope_type = stated(subject, "model.rope_type")
    if stated(subject, _FUSION) and isinstance(rope_type, str) and rope_type != "yarn":
        yield Violation(
            where=_FUSION,
            found=f"true with rope_type {rope_type}",
            allowed="false, or rope_type yarn",
            changes=change(_FUSION, False, "multi-latent attention fuses rotary embeddings with YaRN only"),
        )
    if stated(subject, "model.hybrid_context_parallel"):
        yield Violation(
            where="model.hybrid_context_parallel",
            found="true with multi-latent attention",
            allowed="false",
            changes=change("model.hybrid_context_parallel", False, "multi-latent attention asserts it off"),
        )


@rule("BP911", ERROR, "PSB911; megatron/core/transformer/transformer_config.py:2837-2838", noticed="validate()")
def sparse_attention_with_fused_rotary(subject: RunSubject) -> Iterator[Violation]:
    """A model with DeepSeek sparse attention has fused rotary embeddings.

    Why: Crash in validate(): "RoPE fusion is not supported for DSAttention".
    Bad: experimental_attention_variant dsa, apply_rope_fusion true.
    Good: experimental_attention_variant dsa, apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    if stated(subject, _FUSION) and subject.of_model("experimental_attention_variant") == "dsa":
        yield Violation(
            where=_FUSION,
            found="true with sparse attention",
            allowed="false",
            changes=change(_FUSION, False, "sparse attention refuses fused rotary embeddings"),
        )


@rule(
    "BP912",
    WARNING,
    "PSB912; megatron/core/models/common/embeddings/rope_utils.py:292-330; "
    "megatron/bridge/models/qwen_vl/modelling_qwen3_vl/rope.py:467-483",
)
def fused_rotary_with_several_axes(subject: RunSubject) -> Iterator[Violation]:
    """Rotary embeddings over several axes (mRoPE) are asked for fused, which no kernel does.

    Why: Silent: the fused kernel for packed rows restarts one table of positions at every sequence, while these models
        have positions of their own for every token; some providers switch the setting off, others assert.
    Bad: Qwen3-VL, position_embedding_type mrope, apply_rope_fusion true.
    Good: Qwen3-VL, position_embedding_type mrope, apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false.
    Noticed: a warning, or first step.
    Evidence: read in the source of 0.6.2 and megatron-core 0.19.2.
    """
    has_axes = bool(stated(subject, "model.mrope_section"))
    if stated(subject, _FUSION) and (stated(subject, "model.position_embedding_type") == "mrope" or has_axes):
        yield Violation(
            where=_FUSION,
            found="true with mrope",
            allowed="false",
            changes=change(_FUSION, False, "the fused kernels know one axis of positions"),
        )


@rule("BP913", ADVICE, "PSB913; transformer_engine/pytorch/attention/dot_product_attention/utils.py:977-1078")
def windowed_or_offset_attention_packed(subject: RunSubject) -> Iterator[Violation]:
    """Packed rows meet a sliding window or a learned softmax offset, which not every backend has for them.

    Why: Crash at the first step where none is left: "No dot product attention backend is available".
    Bad: gpt-oss (softmax_type learnable, window_size 127) packed, never tried on that GPU.
    Good: one step on one GPU of the same kind first; or a model without window and offset.
    Fix: Train one step on one GPU with the same image before the whole run; cuDNN 9.18 or newer for offsets.
    Noticed: first step.
    Evidence: read in the source of TransformerEngine 2.17.1; depends on the GPU and on cuDNN.
    """
    if not subject.is_packed:
        return
    window, softmax = subject.of_model("window_size"), subject.of_model("softmax_type")
    if window is not None:
        yield Violation(where="model.window_size", found=f"{window}, packed", allowed="tried on one GPU first")
    if softmax not in (None, "vanilla"):
        yield Violation(where="model.softmax_type", found=f"{softmax}, packed", allowed="tried on one GPU first")


@rule("BP914", ADVICE, "PSB914; megatron/bridge/data/packing/gpt_sft.py:151-331")
def learned_positions_packed(subject: RunSubject) -> Iterator[Violation]:
    """Packed rows meet learned absolute positions, which are right only where positions restart at every sequence.

    Why: Silent in a dataset of one's own whose position_ids run through the row; the host's own restart at 0.
    Bad: position_embedding_type learned_absolute, packing on, position_ids 0 to 15 over two sequences.
    Good: position_ids 0 to 8, then 0 to 6; or position_embedding_type rope.
    Fix: Restart position_ids at every sequence, as the host's dataset does.
    Evidence: read in the source of 0.6.2.
    """
    if subject.is_packed and stated(subject, "model.position_embedding_type") == "learned_absolute":
        yield Violation(
            where="model.position_embedding_type",
            found="learned_absolute, packed",
            allowed="position_ids that restart at every sequence",
        )
