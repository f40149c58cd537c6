"""Rules on the size of attention heads, which bounds what attention kernels take."""

from bridgepack.records.messages import join, say, setting
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_PACKED, SPECS, Run
from bridgepack.rules.run.reading import (
    attention_backend,
    backend_takes_effect,
    pads_between_sequences,
    splits_context,
    uses_engine_attention,
)

#: Largest head, numbers, of FlashAttention 2 and 3 and, in training, of the fused kernel.
#: Source: TransformerEngine 2.17.1, dot_product_attention/utils.py:843-882 and fused_attn.cpp:310-330.
LARGEST_HEAD = 256
#: Settings that can hold the size of the heads of some layers.
_SIZES = ("kv_channels", "global_head_dim", "global_kv_channels")
_LATENT = ("qk_head_dim", "qk_pos_emb_head_dim")
#: Family whose class has larger heads in its global layers, where the settings do not say.
_GLOBAL_HEADS = {"gemma4": 512, "gemma4_vl": 512}


def largest_head(run: Run) -> tuple[str, int]:
    """Return the setting with the size of the model's largest heads, over all layers, and the size."""
    if run.stated_value("model.multi_latent_attention"):
        queries = sum(run.integer(f"model.{name}") for name in _LATENT)
        return "model.qk_head_dim", max(queries, run.integer("model.v_head_dim"))
    if not run.is_stated("model._target_"):
        return "model.name", _GLOBAL_HEADS.get(run.family.name, 0)
    actual = [(size, f"model.{name}") for name in _SIZES if (size := run.stated_integer(f"model.{name}"))]
    if not actual:
        return "model.hidden_size", run.integer("model.hidden_size") // run.integer("model.num_attention_heads")
    size, path = max(actual)
    return path, size


def has_large_heads(run: Run) -> bool:
    """Return whether heads are known to be too large for kernels."""
    try:
        return _is_too_large(run)
    except CannotJudgeError:
        return False


def _is_too_large(run: Run) -> bool:
    return uses_engine_attention(run) and largest_head(run)[1] > LARGEST_HEAD


def _forces_other_backend(run: Run) -> bool:
    return attention_backend(run) in ("flash", "fused") and backend_takes_effect(run)


@fixable_rule(
    "BP730",
    ERROR,
    "TE/dot_product_attention/utils.py:843-882,972-990",
    noticed="first step",
    when=_is_too_large,
)
def no_kernel_for_large_heads(run: Run) -> Found:
    """Heads are larger than 256, and sequences are padded, ranks share a sequence, or a kernel is forced.

    Why: Crash at the first step, "No dot product attention backend is available", on every GPU: flash and fused kernels
        train heads up to 256, and `unfused` takes neither padding between sequences nor context parallelism.
    Bad: Gemma 4, whose global layers have heads of 512, context_parallel_size 2. Good: 1, pad_seq_to_mult 1.
    Fix: Set {model.context_parallel_size} to 1, {model.sequence_parallel} to false and, if set,
        {dataset.offline_packing_specs.pad_seq_to_mult} to 1, do not set {model.attention_backend}, and pack again. No
        {model.cp_comm_type} helps.
    Evidence: read in TransformerEngine 2.17.1. Source: TE/common/fused_attn/fused_attn.cpp:310-330
    """
    path, size = largest_head(run)
    heads = say("with heads of {size} ({path})", size=size, path=setting(path))
    if splits_context(run):
        yield wrong(
            "model.context_parallel_size",
            join([str(run.context_parallel_size), heads], " "),
            "1, whatever cp_comm_type",
        )
    elif run.is_packed and pads_between_sequences(run):
        if run.packs_offline:
            allowed_values = "1: no sequence parallelism, or tensor parallelism 1"
            yield wrong(
                f"{SPECS}.pad_seq_to_mult",
                join([str(run.pad_seq_to_mult), heads], " "),
                allowed_values,
                needs_repack=True,
            )
        else:
            actual = join([f"sequences padded to {run.recommended_pad_seq_to_mult}", heads], " ")
            yield wrong("dataset.enable_in_batch_packing", actual, "false")
    elif run.is_packed and _forces_other_backend(run):
        actual = join([str(attention_backend(run)), heads], " ")
        yield wrong(
            "model.attention_backend", actual, "not set, or unfused", to=None, because="only unfused takes them"
        )


@rule("BP731", WARNING, when=(IS_PACKED, _is_too_large), evidence="read in TransformerEngine 2.17.1")
def large_heads_unfused(run: Run) -> Found:
    """Heads are larger than 256, so attention over packs is computed without a kernel.

    Why: Slow: `unfused` alone takes such heads. It keeps every score of the longest sequence for each sequence of a
        pack: memory grows with the square of that length, times the sequences.
    Bad: Gemma 4, whose global layers have heads of 512, in packs of 32768. Good: a model with heads of 256.
    Fix: Keep {dataset.offline_packing_specs.max_single_sequence_length} short, and try the largest pack on one GPU
        before you rely on it.
    Source: TE/dot_product_attention/backends.py:425-460; TE/common/fused_attn/fused_attn.cpp:310-330
    """
    path, size = largest_head(run)
    if not splits_context(run) and not pads_between_sequences(run) and not _forces_other_backend(run):
        yield wrong(path, f"heads of {size} over packs", f"heads up to {LARGEST_HEAD} for a fused or flash kernel")
