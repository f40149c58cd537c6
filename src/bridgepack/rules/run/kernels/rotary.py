"""Rules on rotary embeddings over packed rows."""

from __future__ import annotations

import math

from bridgepack.rules.engine.rule import ADVICE, ERROR, FIRST_STEP, INFERRED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_PACKED, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.reading import truths

_FUSION = "model.apply_rope_fusion"
#: Ends of the names of model classes that do not go through GPTModelProvider.provide(), which turns fusion off.
_OWN_CONSTRUCTION = ("VLModelProvider", "OmniModelProvider", "OmniModalityProvider", "AudioModelProvider")


@rule("BP710", ERROR, "PSB710; core/transformer/attention.py:1361-1384", noticed=FIRST_STEP)
def single_fused_rotary_embedding(run: Run) -> Found:
    """Rotary embeddings of queries and keys are fused into one kernel, which cannot take packed rows.

    Why: Crash at the first step: "fused_single_qkv_rope requested but not available/supported for the config."
    Bad: fused_single_qkv_rope true, packing on. Good: fused_single_qkv_rope false, apply_rope_fusion true.
    Fix: Set model.fused_single_qkv_rope to false; apply_rope_fusion keeps the other fused kernel.
    """
    path = "model.fused_single_qkv_rope"
    if run.is_packed and run.stated(path) is True and not run.stated("model.multi_latent_attention"):
        why = "the kernel has no packed form"
        yield wrong(path, "true with packed rows", "false with packed rows", to=False, because=why)


@rule("BP711", WARNING, "PSB711; core/models/common/embeddings/rope_utils.py:318-327", when=IS_PACKED)
def fused_rotary_embedding_loses_yarn_scale(run: Run) -> Found:
    """The fused rotary embedding of packed rows leaves out the scale that YaRN multiplies attention with.

    Why: Silent: queries and keys are too small by it. GPTModelProvider turns fusion off; vision classes do not.
    Bad: a vision-language provider, position_embedding_type yarn, factor 32, apply_rope_fusion true. Good: no fusion.
    Fix: Set model.apply_rope_fusion to false. Evidence: read in the source; the effect is inferred.
    """
    if run.stated(_FUSION) is not True or run.stated("model.position_embedding_type") != "yarn":
        return
    kind, scale = run.class_name("model") or "", yarn_scale(run)
    if scale != 1.0 and kind.endswith(_OWN_CONSTRUCTION):
        found, why = f"true in {kind}, where YaRN scales by {scale:.3f}", "only the kernel not fused applies the scale"
        yield wrong(_FUSION, found, "false with YaRN over packed rows", to=False, because=why)


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


@rule("BP712", ADVICE, "PSB712; core/models/common/embeddings/rope_utils.py:206", when=IS_PACKED, evidence="SkyRL #274")
def rotary_embedding_sequence_by_sequence(run: Run) -> Found:
    """Rotary embeddings of packed rows are computed in a loop over sequences.

    Why: Slow: without fusion every layer copies the boundaries from the GPU and starts kernels for each sequence.
    Bad: apply_rope_fusion false, 40 short sequences in a pack. Good: apply_rope_fusion true.
    Fix: Set model.apply_rope_fusion to true where the model has plain rotary embeddings.
    """
    if run.stated(_FUSION) is False and run.stated("model.position_embedding_type") == "rope":
        yield wrong(_FUSION, "false with packed rows", "true, which takes all sequences at once")


@rule("BP713", ADVICE, "PSB713; core/models/common/embeddings/rope_utils.py:225", when=PACKS_OFFLINE, evidence=INFERRED)
def positions_run_on_through_the_pack(run: Run) -> Found:
    """The longest sequence is as long as a pack, and then rotary positions do not restart in any sequence.

    Why: Silent: positions count from the start of the pack, which only plain rotary embeddings do not mind.
    Bad: pad_cu_seqlens true, apply_rope_fusion false, a sequence of 4096 in packs of 4096.
    Good: apply_rope_fusion true.
    Fix: Set model.apply_rope_fusion to true, or max_single_sequence_length below packed_sequence_size.
    """
    if run.stated(_FUSION) is not False or not run.flag(f"{SPECS}.pad_cu_seqlens"):
        return
    for truth in truths(run):
        if truth.max_runtime_length == run.packed_sequence_size:
            found = f"false; longest sequence of {truth.split}: {truth.max_runtime_length} tokens, as long as a pack"
            yield wrong(_FUSION, found, "true, or sequences shorter than a pack")
