"""Rules on rotary embeddings over packed rows."""

from __future__ import annotations

import math

from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run

_FUSION = "model.apply_rope_fusion"
#: Ends of the names of model classes that do not go through GPTModelProvider.provide(), which turns fusion off.
_OWN_CONSTRUCTION = ("VLModelProvider", "OmniModelProvider", "OmniModalityProvider", "AudioModelProvider")


@rule("BP710", ERROR, "PSB710; core/transformer/attention.py:1361-1384", noticed=FIRST_STEP)
def single_fused_rotary_embedding(run: Run) -> Found:
    """Rotary embeddings of queries and keys are fused into one kernel, which cannot take packed rows.

    Why: Crash at the first step: "fused_single_qkv_rope requested but not available/supported for the config."
    Bad: fused_single_qkv_rope true, packing on.
    Good: fused_single_qkv_rope false, apply_rope_fusion true.
    Fix: Set model.fused_single_qkv_rope to false; apply_rope_fusion keeps the other fused kernel.
    Evidence: read in the source of megatron-core 0.19.2.
    """
    path = "model.fused_single_qkv_rope"
    if run.is_packed and run.stated(path) is True and not run.stated("model.multi_latent_attention"):
        allowed = "false with packed rows"
        yield wrong(path, "true with packed rows", allowed, to=False, because="the kernel has no packed form")


@rule("BP711", WARNING, when=IS_PACKED)
def fused_rotary_embedding_loses_yarn_scale(run: Run) -> Found:
    """The fused rotary embedding of packed rows leaves out the scale that YaRN multiplies attention with.

    Why: Silent: queries and keys are too small by that factor, packed rows only. GPTModelProvider turns fusion off by
        itself; model classes that build their language model on their own do not.
    Bad: a vision-language provider with position_embedding_type yarn, scaling factor 32, apply_rope_fusion true.
    Good: the same with apply_rope_fusion false.
    Fix: Set model.apply_rope_fusion to false.
    Evidence: read in the source of megatron-core 0.19.2; which classes are affected is inferred.
    Source: PSB711; core/models/common/embeddings/rope_utils.py:318-327; bridge/utils/fusions.py:84-92
    """
    if run.stated(_FUSION) is not True:
        return
    if run.stated("model.position_embedding_type") != "yarn" or yarn_scale(run) == 1.0:
        return
    kind = run.class_name("model") or ""
    if kind.endswith(_OWN_CONSTRUCTION):
        found = f"true in {kind}, where YaRN scales by {yarn_scale(run):.3f}"
        allowed = "false with YaRN over packed rows"
        yield wrong(_FUSION, found, allowed, to=False, because="only the kernel that is not fused applies the scale")


def yarn_scale(run: Run) -> float:
    """Return the factor that YaRN multiplies queries and keys with; 1.0 where it does not scale.

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
    """Rotary embeddings of packed rows are computed in a loop over sequences.

    Why: Slow: without fusion every layer copies the boundaries from the GPU and starts kernels for each sequence.
    Bad: apply_rope_fusion false, 40 short sequences in a pack.
    Good: apply_rope_fusion true.
    Fix: Set model.apply_rope_fusion to true where the model has plain rotary embeddings.
    Evidence: read in the source of megatron-core 0.19.2; SkyRL #274.
    """
    if run.stated(_FUSION) is not False:
        return
    if run.stated("model.position_embedding_type") == "rope":
        yield wrong(_FUSION, "false with packed rows", "true, which takes all sequences at once")


@rule("BP713", ADVICE, "PSB713; core/models/common/embeddings/rope_utils.py:225-246", when=PACKS_OFFLINE)
def positions_run_on_through_the_pack(run: Run) -> Found:
    """The longest sequence is as long as a pack, and then rotary positions do not restart in any sequence.

    Why: Silent: with pad_cu_seqlens and without fusion, positions count from the start of the pack. Plain rotary
        embeddings are relative, so nothing changes; anything that depends on the position itself does.
    Bad: pad_cu_seqlens true, apply_rope_fusion false, a sequence of 4096 tokens in packs of 4096.
    Good: apply_rope_fusion true.
    Fix: Set model.apply_rope_fusion to true, or max_single_sequence_length below packed_sequence_size.
    Evidence: read in the source of megatron-core 0.19.2; the effect is inferred.
    """
    if run.stated(_FUSION) is not False:
        return
    if not run.flag(f"{SPECS}.pad_cu_seqlens"):
        return
    for truth in run.require_artifact().require_truths():
        if truth.max_runtime_length == run.packed_sequence_size:
            found = f"false; longest sequence of {truth.split}: {truth.max_runtime_length} tokens, as long as a pack"
            yield wrong(_FUSION, found, "true, or sequences shorter than a pack")
